"""Tests that ambiguous batches and results are refused, by a message that states what to pass instead."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import unmask
from mask_check.findings import BROKEN, CANNOT_TELL, OBEYS
from tests.mask_check.test_loss_row import IDS, Decoder, T, V, X, Y, each

ONES, ARANGE = torch.ones_like(X), torch.arange(T).expand_as(X)
TARGETS = r"expected targets \[B, T\], named by targets="
Loss = Callable[[Any], Any]


def reads(name: Any, labels: Any, later: int, returned: str) -> Loss:
    """Return a loss function that reads the tokens of `name` and predicts those of `labels`, each at its position."""

    def loss(given: Any) -> Any:
        logits = Decoder(later)(given[name])
        losses = each(logits, given[labels])
        return {"each": losses, "mean": losses.mean(), "both": (losses.mean(), logits)}[returned]

    return loss


def refuses(fn: Loss, batch: Any, words: str, **options: Any) -> None:
    with pytest.raises(unmask.CannotCheck, match=words):
        unmask.check_loss(fn, batch, **{"vocabulary": V} | options)


ROWS = {
    "ids, mask, labels": (X, ONES, Y),
    "ids, mask, ids": (X, ONES, X.clone()),
    "ids, bool mask, class": (X, ONES.bool(), Y[:, 0]),
    "ids, types, mask, labels": (X, ONES * 0, ONES, Y),
    "ids, positions, labels": (X, ARANGE, Y),
    "ids, mask": (X, ONES),
    "ids, positions": (X, ARANGE),
    "ids, documents": (X, ARANGE // 5),
    "ids, class": (X, Y[:, 0]),
    "source, target": (IDS.flip(1)[:, :9], Y),
    "source, read, predicted": (IDS.flip(1)[:, :9], X, Y),
    "one token": (ONES, ONES.clone()),
}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("returned", ["each", "mean", "both"])
def test_a_row_of_tensors_that_does_not_show_which_are_the_targets(row: str, returned: str) -> None:
    last = len(ROWS[row]) - 1
    fn = lambda given: reads(0, last, T, returned)([given[0], *given[1:]])  # noqa: E731
    refuses(fn, ROWS[row], TARGETS)


@pytest.mark.parametrize(("later", "wanted"), [(0, OBEYS), (T, BROKEN)])
@pytest.mark.parametrize("returned", ["each", "both"])
def test_the_number_of_the_targets_in_a_row_says_it(later: int, wanted: str, returned: str) -> None:
    batch = (X, ONES, Y)
    report = unmask.check_loss(reads(0, 2, later, returned), batch, targets=2, vocabulary=V)
    assert report.verdict == wanted, report


@pytest.mark.parametrize(
    "batch",
    [
        {"tokens": X, "next": Y},
        {"in": X, "tgt": Y},
        {"source": IDS[:, :9], "target_in": X, "target_out": Y},
        {"input_ids": X, "labels": Y, "targets": X},
        {"input_ids": X, "labels": Y.tolist()},
        {"input_ids": X, "decoder_input_ids": Y},
    ],
)
def test_names_that_do_not_show_which_are_the_targets(batch: dict[str, Any]) -> None:
    refuses(lambda given: Decoder(0)(X[:1]), batch, TARGETS)


@pytest.mark.parametrize(
    "batch",
    [
        {"net_input": {"src_tokens": X}, "target": Y},
        ((X, ONES), Y),
        {"inputs": [X, ONES], "labels": Y},
        {"outer": ({"x": X},), "labels": Y},
    ],
)
def test_tensors_inside_another_part_of_the_batch(batch: Any) -> None:
    refuses(lambda given: Decoder(T)(X[:1]), batch, "by name or in a row, and a function that nests or converts them")


@pytest.mark.parametrize("fn", [lambda x, y: x, lambda: X, lambda *, x, y: x])
def test_a_function_of_other_arguments_is_told_what_it_is_called_with(fn: Any) -> None:
    refuses(fn, {"x": X, "y": Y}, r"expected a function called with the batch alone, such as `lambda batch: model\(")
    assert unmask.check_loss(lambda *given: reads("x", "y", 0, "each")(*given), {"x": X, "y": Y}, vocabulary=V).obeys


def test_what_is_not_tensors_in_a_batch_stays() -> None:
    batch = {"x": X, "y": Y, "texts": ["one", "two", "three"], "info": {"epoch": 3}, "names": []}
    assert unmask.check_loss(reads("x", "y", 0, "each"), batch, vocabulary=V).obeys


LABELS = Y.where((torch.arange(T) > 2) & (torch.arange(T) < 8), -100)
BATCH = {"input_ids": X, "labels": LABELS}


@pytest.mark.parametrize("beside", ["dict", "tuple"])
@pytest.mark.parametrize("labels", [LABELS, Y.where(torch.arange(T) < T - 1, -100)])
def test_logits_of_the_counted_targets_alone(labels: Tensor, beside: str) -> None:
    def fn(given: dict[str, Tensor]) -> Any:
        logits = Decoder(0)(given["input_ids"])
        loss = each(logits, given["labels"]).sum(-1)
        kept = logits[given["labels"] >= 0] + 3 * F.one_hot(given["labels"][given["labels"] >= 0], V)
        return {"loss": loss, "logits": kept} if beside == "dict" else (loss, kept)

    words = (
        r"expected logits \[B, T, V\]" if beside == "dict" else "expected one loss, one tensor of logits or both, got"
    )
    refuses(fn, {"input_ids": X, "labels": labels}, words)


@pytest.mark.parametrize("shape", [(1, 3), (1, T, 5), (1, T - 2, V), (1, T + 4, V), (1, V, T), (T, 5), (T,)])
@pytest.mark.parametrize("name", ["label", "labels"])
def test_logits_of_other_shapes(shape: tuple[int, ...], name: str) -> None:
    """The shapes are of a classifier of whole rows, of some of the tokens, or with a prompt of vectors before them."""
    batch = {"input_ids": X, name: Y[:, 0] if name == "label" else Y}
    fn = lambda given: {"loss": torch.ones(()), "logits": torch.zeros(shape)}  # noqa: E731
    refuses(fn, batch, rf"expected logits \[B, T, V\] with B = 1, T = {T} and V of at least {V} .vocabulary., got ")


def test_two_losses_or_two_tensors_of_logits() -> None:
    both = reads("input_ids", "labels", 0, "both")
    for more in (torch.zeros(1, T, V), torch.tensor(0.5)):
        refuses(lambda given: (*both(given), more), BATCH, "expected one loss, one tensor of logits or both, got")  # noqa: B023


def test_losses_whose_first_axis_is_the_position() -> None:
    fn = lambda given: reads("input_ids", "labels", 0, "each")(given).mT  # noqa: E731
    refuses(fn, BATCH, r"expected losses \[B, T\] with B = 1, got \[16, 1\]")


@pytest.mark.parametrize("returned", ["each", "both"])
@pytest.mark.parametrize("period", [1, 2])
@pytest.mark.parametrize("later", [0, T])
def test_a_row_that_repeats_does_not_show_where_the_targets_are_read(period: int, returned: str, later: int) -> None:
    ids = (torch.arange(T + 1) % period + 3)[None]
    report = unmask.check_loss(
        reads("input_ids", "labels", later, returned), {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}, vocabulary=V
    )
    assert (report.verdict, "begin the batch with a row whose tokens differ" in str(report)) == (CANNOT_TELL, True)


@pytest.mark.parametrize("counted", [4, 6, T])
@pytest.mark.parametrize("divided", [False, True])
def test_a_sum_under_a_mask_of_the_loss(counted: int, divided: bool) -> None:
    mask = (torch.arange(T) >= T - counted).float().expand_as(X)

    def fn(given: dict[str, Tensor]) -> Tensor:
        total = (each(Decoder(0)(given["input_ids"]), given["labels"]) * given["loss_mask"]).sum()
        return total / given["loss_mask"].sum() if divided else total

    report = unmask.check_loss(fn, {"input_ids": X, "labels": Y, "loss_mask": mask}, vocabulary=V)
    if not divided or counted == T:
        assert report.verdict == OBEYS, report
    else:
        assert report.verdict == CANNOT_TELL
        assert f"if the loss is multiplied by {counted}: return it without its division by a number." in str(report)


@pytest.mark.parametrize("counted", [torch.arange(T) % 2 == 0, torch.arange(T) == 5])
@pytest.mark.parametrize("later", [-1, 0, 1])
def test_a_sum_whose_decoder_reads_targets_that_a_mask_of_the_loss_leaves_out(counted: Tensor, later: int) -> None:
    def fn(given: dict[str, Tensor]) -> Tensor:
        read = F.pad(given["labels"].clamp(min=0), (-later, later)) if later else X[:1, :1].expand(1, T)
        logits = Decoder(0)(read, torch.eye(T, dtype=torch.bool), given["source"])
        return (F.cross_entropy(logits.mT, given["labels"], reduction="none") * counted).sum()

    report = unmask.check_loss(fn, {"source": X[:, :5], "labels": Y}, vocabulary=V)
    assert report.verdict == (CANNOT_TELL if later else OBEYS), report
    assert ("a mean hides" in str(report)) == bool(later)


@pytest.mark.parametrize("smoothing", [0, 0.1])
@pytest.mark.parametrize("prompt", [1, 6])
@pytest.mark.parametrize(("later", "wanted"), [(0, OBEYS), (1, BROKEN), (T, BROKEN)])
def test_a_mean_beside_logits_that_leaves_out_a_prompt(later: int, wanted: str, prompt: int, smoothing: float) -> None:
    """How the loss depends on the logits shows which target each row of logits predicts."""
    counts = (torch.arange(T) >= prompt).float().expand_as(X)

    def loss(given: dict[str, Tensor], shift: int) -> tuple[Tensor, Tensor]:
        logits, targets = Decoder(later)(given["input_ids"]), given["labels"][:, shift:]
        losses = F.cross_entropy(logits[:, : T - shift].mT, targets, reduction="none", label_smoothing=smoothing)
        return (losses * given["counts"][:, shift:]).sum() / given["counts"].sum(), logits

    for labels, shift in ((Y, 0), (X.clone(), 1)):
        batch = {"input_ids": X, "labels": labels, "counts": counts}
        found = unmask.check_loss(lambda given, shift=shift: loss(given, shift), batch, vocabulary=V)
        assert found.verdict == wanted
        assert found.pair == (None if wanted == OBEYS else (prompt - shift, prompt - shift))
    forgotten = unmask.check_loss(lambda given: loss(given, 0), batch, vocabulary=V)
    assert forgotten.verdict == CANNOT_TELL, "the shift: each row reads what it is to predict"


@pytest.mark.parametrize("number", [T, T - 1])
@pytest.mark.parametrize(("later", "wanted"), [(0, OBEYS), (T, BROKEN)])
def test_a_shifted_sum_divided_by_the_number_of_targets(later: int, wanted: str, number: int) -> None:
    """The divisor is the number of all targets, as in transformers' Trainer, or of those that have a loss."""

    def loss(given: dict[str, Tensor]) -> Tensor:
        logits = Decoder(later)(given["input_ids"])[:, :-1]
        return F.cross_entropy(logits.mT, given["labels"][:, 1:], reduction="sum") / number

    found = unmask.check_loss(loss, {"input_ids": X[:1], "labels": X[:1].clone()}, vocabulary=V)
    assert found.verdict == wanted
