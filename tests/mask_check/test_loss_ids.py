"""Tests of loss functions and ids: entries that are never predicted, ids that a loss ignores, a batch of one id."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import unmask
from mask_check.findings import BROKEN, CANNOT_TELL, OBEYS
from tests.mask_check.test_loss import IDS, PAIR, B, T, V, each, logits_of


@pytest.mark.parametrize("masked", [-math.inf, torch.finfo(torch.float32).min, -1e9, -65504.0, -1e4])
@pytest.mark.parametrize("peek", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_logits_with_an_entry_that_is_never_predicted(masked: float, peek: float, dtype: torch.dtype) -> None:
    def masking(given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits = logits_of(given, peek=peek).to(dtype)
        logits[..., 0] = max(masked, torch.finfo(dtype).min) if math.isfinite(masked) else masked
        return logits, each(given).mean()

    report = unmask.check_loss(masking, PAIR | {"labels": PAIR["labels"].clamp(min=1)}, vocabulary=V)
    said = "with none at their own position or later (12 positions tried)" in str(report)
    assert (report.verdict, said) == ((BROKEN, False) if peek else (OBEYS, True)), report


def test_logits_that_are_all_large() -> None:
    def shifted(given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits = logits_of(given, peek=3000.0) + 2e5
        return logits, each(given).mean()

    assert unmask.check_loss(shifted, PAIR, vocabulary=V).verdict == BROKEN


def test_a_logit_far_below_the_others_counts_unless_it_is_masked() -> None:
    def far(given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits = logits_of(given, peek=5.0)
        logits[..., 0] = 300
        return logits, each(given).mean()

    labels = PAIR["labels"].clamp(min=1)
    assert unmask.check_loss(far, PAIR | {"labels": labels}, vocabulary=V).verdict == BROKEN
    with pytest.raises(unmask.CannotCheck, match="expected a loss or logits, got tuple"):
        unmask.check_loss(lambda given: tuple(one.int() for one in far(given)), PAIR, vocabulary=V)


def test_logits_that_are_no_numbers() -> None:
    def without(given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits = logits_of(given, peek=3.0) * math.nan
        return logits, each(given).mean()

    def with_other_targets(given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        same = given["labels"].equal(PAIR["labels"][:1])
        return logits_of(given) if same else logits_of(given) * math.nan, each(given).mean()

    report = unmask.check_loss(without, PAIR, vocabulary=V)
    assert report.verdict == CANNOT_TELL
    assert "NaN" in str(report)
    assert unmask.check_loss(with_other_targets, PAIR, vocabulary=V).verdict == BROKEN


@pytest.mark.parametrize("by", [math.nan, math.inf])
def test_losses_that_are_no_numbers(by: float) -> None:
    for loss in (lambda given: each(given) * by, lambda given: each(given).mean() * by):
        report = unmask.check_loss(loss, PAIR, vocabulary=V)
        assert report.verdict == CANNOT_TELL
        assert "its loss is NaN at some position, or infinite at all of them" in str(report)


@pytest.mark.parametrize("seed", range(4))
def test_a_mean_without_two_ids_names_both(seed: int) -> None:
    ids = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(seed))

    def mean(given: dict[str, Tensor]) -> Tensor:
        kept = (given["labels"] != 0) & (given["labels"] != 1)
        return (each(given) * kept).sum() / kept.sum()

    report = unmask.check_loss(mean, {"input_ids": ids[:, :-1], "labels": ids[:, 1:].clamp(min=2)}, vocabulary=V)
    assert "the loss ignores these targets: 0 and 1." in str(report), report


def test_a_batch_of_zeros_has_another_id_too() -> None:
    zeros = {name: torch.zeros_like(one) for name, one in PAIR.items()}
    report = unmask.check_loss(lambda given: (logits_of(given), each(given).mean()), zeros)
    assert (report.verdict, "a row whose tokens differ" in str(report)) == (CANNOT_TELL, True), report


class Reader(torch.nn.Module):
    """A network whose logits depend on the mean of all tokens up to a position, or of the whole row."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.causal, self.table = causal, torch.randn(V, V, generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        read = self.table[ids]
        steps = torch.arange(1, ids.shape[1] + 1)[:, None]
        return read.cumsum(1) / steps if self.causal else read.mean(1, keepdim=True).expand_as(read)


@pytest.mark.parametrize("pair", ["same", "next"])
@pytest.mark.parametrize("returned", ["each", "logits"])
@pytest.mark.parametrize("name", ["input_ids", "x", 0])
def test_ids_that_hold_the_targets_are_changed_with_them(pair: str, returned: str, name: str | int) -> None:
    """The labels equal the ids, as from collators for causal language models, or the two are row[:-1] and row[1:]."""
    ids, labels = (IDS, IDS) if pair == "same" else (PAIR["input_ids"], PAIR["labels"])

    def loss(network: Reader, shift: int) -> Any:
        def found(given: Any) -> Any:
            read, wanted = (given[0], given[1]) if name == 0 else (given[name], given["labels"])
            logits = network(read)
            losses = F.cross_entropy(
                logits[:, : logits.shape[1] - shift].mT,
                wanted[:, shift:],
                reduction="none" if returned == "each" else "mean",
            )
            return losses if returned == "each" else (logits, losses)

        return found

    batch = (ids, labels) if name == 0 else {name: ids, "labels": labels}
    shift = int(pair == "same")
    assert unmask.check_loss(loss(Reader(True), shift), batch, vocabulary=V).verdict == OBEYS
    leaking = unmask.check_loss(loss(Reader(False), shift), batch, vocabulary=V)
    assert leaking.verdict == BROKEN, leaking
    assert ("changing both from position" in str(leaking)) == (returned == "logits")
    if pair == "same":
        unshifted = unmask.check_loss(loss(Reader(True), 0), batch, vocabulary=V)
        assert unshifted.verdict == CANNOT_TELL
        assert f"that {'batch[0]' if name == 0 else name} holds at their own positions" in str(unshifted)


@pytest.mark.parametrize("pair", ["same", "next"])
def test_a_prompt_that_is_read_in_both_directions_and_not_predicted(pair: str) -> None:
    """A prefix language model reads its prompt this way."""
    ids, labels = (IDS, IDS.clone()) if pair == "same" else (PAIR["input_ids"], PAIR["labels"].clone())
    shift = int(pair == "same")
    labels[:, : 4 + shift] = -100

    def loss(given: dict[str, Tensor], prompt: int) -> tuple[Tensor, Tensor]:
        logits = Reader(True)(given["input_ids"])
        whole = Reader(False)(given["input_ids"][:, :prompt])
        logits = torch.cat([whole, logits[:, prompt:]], 1)
        return logits, F.cross_entropy(logits[:, : logits.shape[1] - shift].mT, given["labels"][:, shift:])

    batch = {"input_ids": ids, "labels": labels}
    for prompt, verdict in ((5, OBEYS), (7, BROKEN)):
        assert unmask.check_loss(partial(loss, prompt=prompt), batch, vocabulary=V).verdict == verdict


def test_more_ids_than_there_are_is_a_sentence() -> None:
    def loss(given: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(logits_of(given).mT, given["labels"], reduction="none")

    with pytest.raises(unmask.CannotCheck, match=f"raised “.*”: is vocabulary, {V + 5}, the number of ids"):
        unmask.check_loss(loss, PAIR, vocabulary=V + 5)


@pytest.mark.parametrize("returned", ["each", "logits"])
def test_targets_that_are_rolled_round_are_named_where_the_last_is_counted(returned: str) -> None:
    network = Reader(True)

    def loss(given: dict[str, Tensor]) -> Any:
        logits = network(given["input_ids"])
        losses = F.cross_entropy(logits.mT, given["labels"], reduction="none" if returned == "each" else "mean")
        return losses if returned == "each" else (logits, losses)

    rolled = IDS.roll(-1, 1)
    without_last = rolled.clone()
    without_last[:, -1] = -100
    another = rolled.clone()
    another[:, -1] = (rolled[:, -1] + 1) % V
    for labels, named in ((rolled, True), (without_last, False), (another, False)):
        found = unmask.check_loss(loss, {"input_ids": IDS, "labels": labels}, vocabulary=V)
        assert found.verdict == OBEYS
        assert ("if torch.roll put it there" in str(found)) == named


def rolled(ids: Tensor) -> Tensor:
    return ids.roll(-1, 1)


def ended(ids: Tensor) -> Tensor:
    return torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], V - 1)], 1)


@pytest.mark.parametrize("targets", [rolled, ended])
@pytest.mark.parametrize("causal", [True, False])
def test_a_last_loss_that_may_be_of_a_rolled_target(targets: Callable[[Tensor], Tensor], causal: bool) -> None:
    """All losses but the last are sound in a decoder, and unsound in a network that reads the whole row."""
    network = Reader(causal)

    def loss(batch: tuple[Tensor]) -> Tensor:
        return F.cross_entropy(network(batch[0]).mT, targets(batch[0]), reduction="none")

    found = unmask.check_loss(loss, (IDS,), vocabulary=V)
    assert found.verdict == (CANNOT_TELL if causal else BROKEN)
    named = ("torch.roll" in str(found), "end token" in str(found), found.pair == (T, T))  # the last of T + 1 ids
    assert named == (causal,) * 3
    assert unmask.check_loss(lambda batch: loss(batch)[:, :-1], (IDS,), vocabulary=V).obeys == causal


def test_losses_that_are_filled_up_with_their_mean() -> None:
    def loss(batch: tuple[Tensor]) -> Tensor:
        losses = F.cross_entropy(Reader(True)(batch[0])[:, :-1].mT, batch[0][:, 1:], reduction="none")
        return torch.cat([losses, losses.mean(1, keepdim=True)], 1)

    assert unmask.check_loss(loss, (IDS,), vocabulary=V).verdict == CANNOT_TELL
