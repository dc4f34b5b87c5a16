"""Tests of batches and losses as in training loops: several names of targets, padding, ignored ids."""

from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import unmask
from mask_check.findings import BROKEN, CANNOT_TELL, OBEYS
from tests.mask_check.test_loss_row import IDS, Decoder, T, V, X, Y, each, verdict

REAL = torch.arange(T) < T - 3


@pytest.mark.parametrize("returned", ["each", "both"])
@pytest.mark.parametrize(("later", "wanted"), [(0, OBEYS), (1, BROKEN)])
@pytest.mark.parametrize("ignored", [0, 3])
def test_the_targets_of_a_decoder_beside_what_it_reads(later: int, wanted: str, ignored: int, returned: str) -> None:
    source = IDS.flip(1)[:, :7]

    def loss(given: dict[str, Tensor]) -> Any:
        logits = Decoder(later)(given["target_in"], source=given["source"])
        losses = each(logits, given["target_out"])
        return losses if returned == "each" else (losses.mean(), logits)

    for order in (("source", "target_in", "target_out"), ("target_out", "target_in", "source")):
        batch = {"source": source, "target_in": X, "target_out": Y.where(torch.arange(T) < T - ignored, -100)}
        assert verdict(loss, {name: batch[name] for name in order}, "target_out") == wanted


def test_several_names_of_targets_are_asked_about() -> None:
    batch = {"input_ids": X, "start_labels": IDS.flip(1)[:, :T], "end_labels": IDS.flip(0)[:, :T]}
    with pytest.raises(unmask.CannotCheck, match="named by targets="):
        verdict(lambda given: each(Decoder(0)(given["input_ids"]), given["end_labels"]), batch)


@pytest.mark.parametrize(
    "more", [{"label": IDS[:, 0]}, {"target_weights": torch.ones(3, T)}, {"label_lengths": IDS[:, 0]}]
)
def test_what_is_called_a_target_and_holds_no_tokens(more: dict[str, Tensor]) -> None:
    def loss(given: dict[str, Tensor]) -> Tensor:
        return each(Decoder(0)(given["input_ids"])[:, :-1], given["input_ids"][:, 1:])

    assert verdict(loss, {"input_ids": IDS} | more) == OBEYS


@pytest.mark.parametrize(("later", "wanted"), [(0, OBEYS), (T, BROKEN)])
def test_a_padded_row_whose_losses_are_masked_is_not_filled_up(later: int, wanted: str) -> None:
    def loss(given: dict[str, Tensor]) -> Tensor:
        ids = given["input_ids"]
        return each(5 * Decoder(later)(F.pad(ids, (1, 0))[:, :T]), ids) * given["attention_mask"]

    assert verdict(loss, {"input_ids": X.where(REAL, 0), "attention_mask": REAL.long().expand_as(X)}) == wanted


@pytest.mark.parametrize("seed", range(8))
def test_a_leak_is_no_division_where_the_other_target_is_ignored(seed: int) -> None:
    few = Y % 3

    def loss(given: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(Decoder(T)(given[0])[..., :3].mT, given[1], reduction="none", ignore_index=2)

    report = unmask.check_loss(loss, (X % 3, few), vocabulary=3, seed=seed)
    assert "multiplies" not in str(report), report


def test_a_mean_over_targets_that_are_masked_by_the_function() -> None:
    def loss(given: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(Decoder(0)(given[0]).mT, given[1].masked_fill(given[1] == 0, -100))

    report = unmask.check_loss(loss, (X, Y.where(REAL, 0)), targets=1, vocabulary=V)
    assert "targets of -100 do not leave the others out" not in str(report), report
    assert report.verdict != BROKEN


def test_an_ignored_id_above_the_vocabulary() -> None:
    def loss(given: tuple[Tensor, Tensor], later: int) -> tuple[Tensor, Tensor]:
        logits = Decoder(later)(given[0])
        return logits, F.cross_entropy(logits.mT, given[1], ignore_index=V)

    for later, wanted in ((0, OBEYS), (T, BROKEN)):
        report = unmask.check_loss(
            lambda given: loss(given, later),  # noqa: B023
            (X, Y.where(REAL, V)),
            targets=1,
            vocabulary=V,
        )
        assert report.verdict == wanted, report


def test_losses_and_logits_of_those_that_are_not_padding() -> None:
    def dropped(given: tuple[Tensor, Tensor]) -> Tensor:
        return each(Decoder(0)(given[0]), given[1])[given[1] != V - 1]

    report = unmask.check_loss(dropped, (X, Y % (V - 1)), targets=1, vocabulary=V)
    assert (report.verdict, "return one for each token" in str(report)) == (CANNOT_TELL, True), report

    def kept(given: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        logits = Decoder(0)(given[0])
        return {"loss": each(logits, given[1]).mean(), "logits": logits[given[1] != 0]}

    report = unmask.check_loss(kept, (X, Y), vocabulary=V)
    assert (report.verdict, "logits of another shape" in str(report)) == (CANNOT_TELL, True), report
    with pytest.raises(unmask.CannotCheck, match=r"expected logits \[B, T, V\] with B = 1, .* got \[16\]"):
        verdict(lambda given: {"loss": each(Decoder(0)(given[0]), given[1]), "logits": torch.ones(T)}, (X, Y))


class Closed(OrderedDict):
    """A mapping that cannot be updated, as transformers' ModelOutput."""

    def update(self, *_: Any, **__: Any) -> None:
        raise Exception("You cannot use update on a Closed instance.")


def test_a_batch_that_takes_no_other_rows() -> None:
    assert verdict(lambda given: each(Decoder(0)(given["x"]), given["y"]), Closed(x=X, y=Y)) == OBEYS
