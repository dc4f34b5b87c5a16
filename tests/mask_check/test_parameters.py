"""Tests of unused parameters: an expert that no text is routed to is not one."""

import pytest
import torch
from torch import Tensor, nn

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
