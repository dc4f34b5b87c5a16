"""Tests that tell rounding in a blocked pair from a leak that is as small."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mask_check import rounding
from mask_check.check import check, explain
from mask_check.findings import BROKEN, OBEYS, CheckReport
from mask_check.longer import quick_check
from mask_check.subject import TookTooLong
from tests.mask_check.modules import SmallAttention
from tests.model.huggingface.families import random_network

IS, IS_NOT = "This is rounding.", "This is not rounding."


class MaskedLast(SmallAttention):
    """Attention with a softmax over all keys, 0 where masked, divided by its sum: equal to the masked softmax."""

    def weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
        weights = scores.softmax(-1) * allowed
        return weights / weights.sum(-1, keepdim=True)


class MaximumFirst(SmallAttention):
    """Attention that subtracts the largest score of all keys, masked ones included, as against overflow."""

    def weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return super().weights(scores - scores.amax(-1, keepdim=True), allowed)


class SlightlyOpen(SmallAttention):
    """Attention with a mask of −14, which leaves masked keys a millionth of the weight."""

    def weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return (scores - 14.0 * ~allowed).softmax(-1)


class Loses(nn.Module):
    """A module that adds a mean over the whole row and subtracts it again, which leaves its rounding.

    leak: what it really adds of each later token, "state" with a gradient or "ids" without, as by a hash of ids.
    """

    def __init__(self, leak: str = "", size: float = 1e-5) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding, self.added, self.head = nn.Embedding(31, 8), nn.Identity(), nn.Linear(8, 31)
        self.leak, self.size = leak, size

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embedding(input_ids)
        whole = 300 * x.mean(1, keepdim=True)
        x = self.added(x.cumsum(1) + whole) - whole
        later = input_ids.flip(1)
        if self.leak == "state":
            x = x + self.size * self.embedding(input_ids).flip(1)
        if self.leak == "ids":
            x = x + self.size * F.one_hot(later % 8, 8).to(x)
        return self.head(x)


class LosesGradients(Loses):
    """A Loses module with three tenths of the mean in two parts: their gradients cancel out except for rounding."""

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embedding(input_ids)
        whole = 2000 * x.mean(1, keepdim=True)
        x = self.added(x.cumsum(1) + 0.1 * whole + 0.2 * whole) - 0.3 * whole
        return self.head(x)


class LosesPads(Loses):
    """A Loses module whose mean includes the pads."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        x = self.embedding(input_ids)
        whole = 300 * x.mean(1, keepdim=True)
        x = x if attention_mask is None else x * attention_mask[..., None]
        return self.head(self.added(x.cumsum(1) + whole) - whole)


class LongConvolution(nn.Module):
    """Causal convolutions by FFT, padded with zeros, as in Hyena and S4: each sum has a rounding of the whole row.

    leak: what the output in the middle of a row of more than `above` tokens adds of the last token.
    """

    def __init__(self, seed: int = 0, leak: float = 0.0, std: float = 0.2, above: int = 64) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding, self.head = nn.Embedding(31, 16), nn.Linear(16, 31)
        self.filters = nn.ParameterList(std * torch.randn(600, 16) for _ in range(2))
        self.leak, self.above = leak, above

    def forward(self, input_ids: Tensor) -> Tensor:
        x, length = self.embedding(input_ids), input_ids.shape[1]
        for one in self.filters:
            product = torch.fft.rfft(x, 2 * length, 1) * torch.fft.rfft(one[:length], 2 * length, 0)
            x = F.layer_norm(x + torch.fft.irfft(product, 2 * length, 1)[:, :length], (16,))
        y = self.head(x)
        y[:, length // 2] += self.leak * self.head(self.embedding(input_ids[:, -1])) * (length > self.above)
        return y


def checked(module: nn.Module, seed: int = 0) -> CheckReport:
    report = check(module, seed=seed)
    assert report.mask is not None
    assert bool(report.mask.leaks.any()) == (report.finding("reach").verdict == BROKEN)
    return report


@pytest.mark.parametrize("module", [MaskedLast, MaximumFirst])
@pytest.mark.parametrize("seed", [8, 10, 16, 47])
def test_a_softmax_before_the_mask_that_is_made_good_obeys(module: type[SmallAttention], seed: int) -> None:
    report = check(module(seed), seed=seed)
    assert report.obeys, [str(finding) for finding in report.broken]


def test_what_rounding_leaves_of_a_blocked_token_is_measured_again_in_float64() -> None:
    report = checked(Loses())
    found = report.finding("reach")
    assert report.noise.beside < found.amount <= report.noise.across == found.tolerance == report.mask.tolerance
    assert found.verdict == OBEYS
    assert ", in float64 by " in found.words
    assert found.words.endswith(IS)
    assert report.finding("length").verdict == OBEYS


@pytest.mark.parametrize("leak", ["state", "ids"])
def test_a_leak_as_small_as_rounding_is_found(leak: str) -> None:
    report = checked(Loses(leak))
    found = report.finding("reach")
    assert found.verdict == BROKEN
    assert found.amount <= report.noise.across
    assert IS_NOT in found.words
    assert (report.finding("gradients").verdict == BROKEN) == (leak == "state")


def test_a_mask_of_a_few_units_is_a_leak() -> None:
    report = checked(SlightlyOpen())
    assert {"reach", "gradients"} <= {finding.law for finding in report.broken}
    assert report.finding("gradients").amount < 1e-3


@pytest.mark.parametrize("in_float64", [True, False])
def test_without_a_copy_in_float64_gradients_tell(in_float64: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(module: nn.Module) -> nn.Module:
        if in_float64:  # and its weights are no float32 numbers, whose sums would be exact
            for parameter in module.double().parameters():
                parameter.data /= 3
        return module

    if not in_float64:
        monkeypatch.setattr(rounding, "MAX_IN_FLOAT64", 10)
    found = checked(made(Loses())).finding("reach")
    assert found.verdict == OBEYS
    assert "the gradients of these pairs are at most 0. " + IS in found.words
    found = checked(made(Loses("state", 1e-14 if in_float64 else 1e-5))).finding("reach")
    assert found.verdict == BROKEN
    assert IS_NOT in found.words


def test_a_module_that_rounds_to_float32_inside_is_told_by_its_gradients() -> None:
    class Coarse(Loses):
        def forward(self, input_ids: Tensor) -> Tensor:
            x = self.embedding(input_ids).float()
            whole = 300 * x.mean(1, keepdim=True)
            return self.head((self.added(x.cumsum(1) + whole) - whole).to(self.head.weight))

    found = checked(Coarse()).finding("reach")
    assert found.verdict == OBEYS
    assert "the gradients of these pairs are at most 0." in found.words


def test_what_rounding_leaves_of_a_gradient_is_measured_again_in_float64() -> None:
    report = checked(LosesGradients())
    found = report.finding("gradients")
    assert 0 < found.amount <= found.tolerance
    assert "The others are at most" in found.words
    assert found.words.endswith(IS)
    assert report.obeys, report.broken


def test_what_rounding_leaves_of_the_pads_is_measured_again_in_float64() -> None:
    report = checked(LosesPads())
    found = report.finding("pad-content")
    assert report.noise.beside < found.amount <= report.noise.across == found.tolerance
    assert report.obeys, report.broken


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(3))
def test_rounding_grows_with_the_row(dtype: torch.dtype, seed: int) -> None:
    report = check(LongConvolution(seed).to(dtype))
    assert report.obeys, report.broken
    found = report.finding("length")
    assert found.amount <= found.tolerance
    assert quick_check(LongConvolution(seed).to(dtype)).obeys


@pytest.mark.parametrize("seed", range(3))
def test_the_rounding_of_float64_is_allowed_to_gradients_of_long_sums(seed: int) -> None:
    report = check(LongConvolution(seed, std=1.0).double())
    assert report.obeys, report.broken


def test_rounding_of_functions_that_are_no_parts_of_the_module_is_measured_in_float64() -> None:
    report = check(LongConvolution(5, std=1.0))  # seed 5 rounds most of 14
    assert report.obeys, report.broken


@pytest.mark.parametrize("leak", [1e-7, 1.5e-6, 2e-6, 2.5e-6])
def test_a_leak_in_a_longer_row_that_is_no_larger_than_its_rounding_is_found(leak: float) -> None:
    found = check(LongConvolution(leak=leak, above=300)).finding("length")
    assert found.verdict == BROKEN
    sound = check(LongConvolution()).finding("length")
    assert found.tolerance < found.amount < sound.tolerance
    assert found.pair == (260, 519)
    assert found.words.endswith("The shortest row that leaks has 301 tokens."), found.words


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_leak_in_a_longer_row_is_reported_with_its_own_position_size_and_length(dtype: torch.dtype) -> None:
    found = check(LongConvolution(leak=1e-2, above=200).to(dtype)).finding("length")
    assert found.pair == (260, 519)
    assert found.amount > 1e-3
    assert found.words.endswith("The shortest row that leaks has 201 tokens."), found.words


@pytest.mark.parametrize("error", [TookTooLong("stopped"), MemoryError("stopped"), RuntimeError("stopped")])
def test_rounding_that_could_not_be_measured_is_no_leak(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise error

    monkeypatch.setattr(rounding.LongRowRounding, "explains", stopped)
    report = check(LongConvolution())
    assert report.obeys, report.broken
    assert "stopped." in report.finding("length").words


def test_what_is_tolerated_is_explained() -> None:
    for law in ("reach", "gradients", "pad-content"):
        assert "a thousand times smaller in" in explain(law).replace("\n", " ")


def test_experts_are_copied_to_float64_too() -> None:
    network = random_network("mixtral")
    before = network.get_experts_implementation()
    assert check(network).finding("derivative").verdict == OBEYS
    assert network.get_experts_implementation() == before
