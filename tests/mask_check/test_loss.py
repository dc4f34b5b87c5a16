"""Loss functions that know what they are to predict, and honest ones, by what they return."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import unmask
from mask_check.findings import CANNOT_TELL, OBEYS, CannotCheck
from tests.mask_check.modules import Nano, ReadsAhead

V, B, T = 31, 2, 12
IDS = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(0))
PAIR = {"input_ids": IDS[:, :-1], "labels": IDS[:, 1:]}


def logits_of(batch: dict[str, Tensor], *, peek: float = 0.0) -> Tensor:
    """peek: what is added to the logit of the target."""
    found = ReadsAhead(above=9999)(batch["input_ids"])
    return found + peek * F.one_hot(batch["labels"], V)


def each(batch: dict[str, Tensor], **more: Any) -> Tensor:
    logits = logits_of(batch, **more)
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none").view(
        batch["labels"].shape
    )


def shifted(batch: dict[str, Tensor], *, ahead: bool = False, mean: bool = False) -> Tensor:
    """Targets are the ids that follow. ahead: every output reads the whole row."""
    ids = batch["input_ids"]
    logits = ReadsAhead(block=99 if ahead else 1, above=0)(ids)[:, :-1]
    losses = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)
    return losses.mean() if mean else losses


def shifts(batch: dict[str, Tensor], *, peek: float = 0.0, **more: Any) -> Tensor:
    """As transformers' models: the labels are the ids, and the loss function shifts them."""
    targets = batch["labels"][:, 1:]
    logits = ReadsAhead(above=9999)(batch["input_ids"])[:, :-1] + peek * F.one_hot(targets.clamp(min=0), V)
    return F.cross_entropy(logits.transpose(1, 2), targets, **more)


SAME = {"input_ids": IDS, "labels": IDS}
HONEST = {
    "each": (each, PAIR),
    "flat": (lambda batch: each(batch).flatten(), PAIR),
    "mean": (lambda batch: each(batch).mean(), PAIR),
    "logits": (lambda batch: (logits_of(batch), each(batch).mean()), PAIR),
    "nanogpt": (lambda batch: Nano()(*batch), (PAIR["input_ids"], PAIR["labels"])),
    "tuple": (lambda batch: each({"input_ids": batch[0], "labels": batch[1]}), [PAIR["input_ids"], PAIR["labels"]]),
    "shifted": (shifted, {"input_ids": IDS}),
    "shifted mean": (lambda batch: shifted(batch, mean=True), {"input_ids": IDS}),
    "labels shifted inside": (shifts, SAME),
    "labels shifted inside, each": (lambda batch: shifts(batch, reduction="none"), SAME),
    "labels shifted inside, some masked": (shifts, SAME | {"labels": torch.where(torch.arange(T + 1) < 4, -100, IDS)}),
}
PEEKING = {
    "labels shifted inside": (lambda batch: shifts(batch, peek=0.3), SAME),
    "labels shifted inside, some masked": (
        lambda batch: shifts(batch, peek=0.3),
        SAME | {"labels": torch.where(torch.arange(T + 1) < 4, -100, IDS)},
    ),
    "one id ignored": (lambda batch: shifts(batch, peek=0.3, ignore_index=3), SAME),
    "one id ignored, each": (lambda batch: shifts(batch, peek=0.3, ignore_index=3, reduction="none"), SAME),
    "each": (lambda batch: each(batch, peek=0.3), PAIR),
    "mean": (lambda batch: each(batch, peek=0.3).mean(), PAIR),
    "logits": (lambda batch: (logits_of(batch, peek=0.3), each(batch).mean()), PAIR),
    "shifted": (lambda batch: shifted(batch, ahead=True), {"input_ids": IDS}),
    "shifted mean": (lambda batch: shifted(batch, ahead=True, mean=True), {"input_ids": IDS}),
    "best of two": (lambda batch: torch.minimum(each(batch), torch.tensor(2.0)), PAIR),  # nanochat's and others' floors
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_losses(name: str) -> None:
    fn, batch = HONEST[name]
    report = unmask.check_loss(fn, batch, vocabulary=V)
    assert (report.verdict, report.obeys) == (OBEYS, True), report


@pytest.mark.parametrize("name", PEEKING)
def test_losses_that_know_their_targets(name: str) -> None:
    fn, batch = PEEKING[name]
    report = unmask.check_loss(fn, batch, vocabulary=V)
    assert not report.obeys
    assert "influences its own prediction" in str(report) or "changes the logits of position" in str(report)


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("ignored", [3, int(IDS[0, 4])])
def test_a_target_that_the_loss_ignores_is_named_and_proves_nothing(reduction: str, ignored: int) -> None:
    report = unmask.check_loss(
        lambda batch: shifts(batch, ignore_index=ignored, reduction=reduction), SAME, vocabulary=V
    )
    assert report.verdict == CANNOT_TELL, report
    assert f"the loss ignores the target {ignored};" in str(report)


def test_what_sums_to_less_is_no_peeking() -> None:
    assert unmask.check_loss(lambda batch: each(batch) + 0.5, PAIR, vocabulary=V).verdict == CANNOT_TELL


@pytest.mark.parametrize("batch", [{}, {"labels": torch.zeros(3)}, {"input_ids": torch.zeros(1, 2).long()}])
def test_no_targets(batch: dict[str, Tensor]) -> None:
    with pytest.raises(CannotCheck, match="expected targets"):
        unmask.check_loss(each, batch)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((None, PAIR), {}, "expected a function of a batch, and targets by name or number, got None and None"),
        ((each, PAIR), {"targets": ["labels"]}, "expected a function of a batch, and targets by name"),
        ((each, 3), {}, "expected a batch as tensors by name or in a row, got 3"),
        ((each, PAIR), {"vocabulary": "many"}, "expected a number of ids from 2 to"),
        ((each, PAIR), {"seed": 0.5}, "expected a seed from 0 to"),
    ],
)
def test_what_means_nothing_is_a_sentence(arguments: tuple, options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        unmask.check_loss(*arguments, **options)


def test_no_loss() -> None:
    with pytest.raises(CannotCheck, match="expected a loss or logits, got str"):
        unmask.check_loss(lambda batch: "loss", PAIR)
