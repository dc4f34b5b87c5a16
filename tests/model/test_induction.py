"""Tests of the induction model: its training rows, that its MLPs add nothing, and the order in which heads form."""

import numpy as np
import pytest
import torch
from torch import Tensor

from model import catalog
from model.gpt2 import load_transformer
from model.text import START_ID
from model.training import induction
from model.training.induction import InductionRecipe, measure, repeated_rows


@pytest.fixture(scope="module")
def formed() -> dict[int, tuple[float, ...]]:
    """Return by step the losses at first and second occurrences, the previous-token and the induction score."""
    folder, found = induction.CHECKPOINTS / "induction", {}
    for name, step in catalog.induction_steps().items():
        path = folder if name == "induction" else folder / str(step)
        found[step] = measure(load_transformer(path)).numbers
    return found


def test_there_are_twenty_checkpoints_in_six_megabytes(formed: dict[int, tuple[float, ...]]) -> None:
    assert [*formed] == sorted({*induction.CHECKPOINTS_AT, catalog.INDUCTION_STEPS})
    assert len(formed) == 20
    assert InductionRecipe().steps == catalog.INDUCTION_STEPS
    files = (path for path in (induction.CHECKPOINTS / "induction").rglob("*") if path.is_file())
    assert sum(path.stat().st_size for path in files) <= 6e6


def test_the_previous_token_head_comes_first_and_the_loss_falls_with_the_induction_head(
    formed: dict[int, tuple[float, ...]],
) -> None:
    steps, (firsts, agains, previous, inductions) = [*formed], map(list, zip(*formed.values(), strict=True))
    assert _first_above(0.1, steps, previous) < _first_above(0.1, steps, inductions)
    assert previous[-1] > 0.6
    assert inductions[-1] > 0.95
    assert agains[-1] < 0.05 < 5 < min(firsts)
    falls = -np.diff(agains) / np.diff(steps)  # nats per step
    at = int(falls.argmax())  # the bump: the loss falls fastest where the induction head forms, slowly before
    assert 0.2 < inductions[at + 1] < 0.8
    assert falls[: steps.index(300)].max() < falls[at] / 3


def _first_above(score: float, steps: list[int], scores: list[float]) -> int:
    return next(step for step, one in zip(steps, scores, strict=True) if one > score)


def test_the_mlps_add_nothing() -> None:
    model = catalog.load("induction")
    batch = model.encode(["qkv mask qkv mask"])
    before = model.run(batch).logits
    for block in model.network.blocks:
        block.mlp_in.weight = torch.nn.Parameter(torch.ones_like(block.mlp_in.weight))
    assert torch.equal(model.run(batch).logits, before)


def test_each_step_has_a_name_and_others_have_none() -> None:
    early, last = catalog.load("induction-0"), catalog.load("induction")
    assert (early.name, last.name) == ("induction-0", "induction")
    assert early.key != last.key
    text = "Zyxwv utsrq Zyxwv utsrq"
    losses = [model.run(model.encode([text])).losses(0)[-8:].mean() for model in (early, last)]
    assert losses[1] < 1 < 5 < losses[0]
    assert "induction-1" not in catalog.induction_steps()


def test_rows_repeat_a_span_and_take_no_loss_of_what_comes_first() -> None:
    ids, targets = repeated_rows(50, 64, torch.Generator().manual_seed(0))
    assert ids.shape == targets.shape == (50, 64)
    assert (ids[:, 0] == START_ID).all()
    for row, wanted in zip(ids, targets, strict=True):
        counted = (wanted >= 0).nonzero().flatten()
        assert torch.equal(wanted[counted][:-1], row[counted[1:]])
        assert all(_came_before(row, int(position), int(wanted[position])) for position in counted)
        assert not any(_came_before(row, position, int(row[position + 1])) for position in range(int(counted[0]) - 1))


def _came_before(row: Tensor, position: int, token: int) -> bool:
    """Whether the token followed an earlier copy of the token at this position."""
    return any(row[one] == row[position] and row[one + 1] == token for one in range(position))
