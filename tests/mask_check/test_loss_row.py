"""Tests of loss functions of a small Transformer, by how their batch holds tokens and by what they return."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

import unmask
from mask_check.findings import BROKEN, CANNOT_TELL, OBEYS

V, B, T = 41, 3, 16
IDS = torch.randint(1, V, (B, T + 1), generator=torch.Generator().manual_seed(1))
X, Y = IDS[:, :-1], IDS[:, 1:]


class Decoder(torch.nn.Module):
    """A Transformer with initial weights. later: how many later tokens a query reads. source: read by all."""

    def __init__(self, later: int, wide: int = 24) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.later = later
        self.embedding, self.position = torch.nn.Embedding(V, wide), torch.nn.Embedding(2 * T, wide)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(wide, 3 * wide) for _ in range(2))
        self.head = torch.nn.Linear(wide, V)
        for weight in self.parameters():
            weight.data.normal_(0, 0.02)

    def forward(self, ids: Tensor, mask: Tensor | None = None, source: Tensor | None = None) -> Tensor:
        length = ids.shape[1]
        x = self.embedding(ids) + self.position.weight[:length]
        if source is not None:
            x = x + self.embedding(source).mean(1, keepdim=True)
        mask = torch.ones(length, length, dtype=torch.bool).tril(self.later) if mask is None else mask
        for layer in self.layers:
            q, k, v = layer(F.layer_norm(x, x.shape[-1:])).chunk(3, -1)
            x = x + F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], attn_mask=mask)[:, 0]
        found: Tensor = self.head(F.layer_norm(x, x.shape[-1:]))
        return found


def each(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.mT, targets, reduction="none")


def verdict(fn: Callable[[Any], Any], batch: Any, targets: str | int | None = None) -> str:
    return unmask.check_loss(fn, batch, targets=targets, vocabulary=V).verdict


@pytest.mark.parametrize(("later", "wanted"), [(0, OBEYS), (1, BROKEN), (T, BROKEN)])
def test_a_small_leak_of_a_network_that_was_just_made(later: int, wanted: str) -> None:
    network = Decoder(later)
    assert verdict(lambda given: each(network(given["x"]), given["y"]), {"x": X, "y": Y}) == wanted
    assert verdict(lambda given: each(network(given["in"]), given["targets"]), {"in": X, "targets": Y}) == wanted
    same = {"input_ids": IDS, "labels": IDS.clone()}
    assert verdict(lambda given: each(network(given["input_ids"])[:, :-1], given["labels"][:, 1:]), same) == wanted
    assert verdict(lambda given: network(given["input_ids"]), same) == wanted
    alone = verdict(lambda given: each(network(given[0])[:, :-1], given[0][:, 1:]), (IDS,))
    assert alone == wanted if later != 1 else alone in (BROKEN, CANNOT_TELL)
    assert verdict(lambda given: F.cross_entropy(network(given[0]).mT, given[1]), (X, Y)) == wanted


@pytest.mark.parametrize("place", [0, 3, 5, 10, 15])
def test_a_leak_at_one_position(place: int) -> None:
    others = torch.randint(1, V, (B, T), generator=torch.Generator().manual_seed(2))

    def leaking(given: dict[str, Tensor]) -> Tensor:
        logits = Decoder(0)(given["x"])
        logits[:, place] += 3 * F.one_hot(given["y"][:, place], V)
        return each(logits, given["y"])

    report = unmask.check_loss(leaking, {"x": X, "y": others}, vocabulary=V)
    assert (report.verdict, report.pair) == (BROKEN, (place, place)), report


@pytest.mark.parametrize("later", [0, T])
@pytest.mark.parametrize("returned", ["each", "logits", "both"])
def test_an_encoder_decoder_that_shifts_its_targets(later: int, returned: str) -> None:
    network, source = Decoder(later), torch.flip(X, (1,))[:, :7]

    def loss(given: dict[str, Tensor]) -> Any:
        logits = network(given["tgt"][:, :-1], source=given["src"])
        losses = each(logits, given["tgt"][:, 1:])
        return {"each": losses, "logits": logits, "both": (losses.mean(), logits)}[returned]

    report = unmask.check_loss(loss, {"src": source, "tgt": IDS}, targets="tgt", vocabulary=V)
    assert report.verdict == (BROKEN if later else OBEYS), report


@pytest.mark.parametrize("later", [0, T])
def test_logits_in_other_shapes(later: int) -> None:
    network = Decoder(later)

    def flat(given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        logits = network(given[0]).flatten(0, 1)
        return logits, F.cross_entropy(logits, given[1].flatten())

    wanted = BROKEN if later else OBEYS
    assert verdict(flat, (X, Y)) == wanted
    with pytest.raises(unmask.CannotCheck, match=r"expected logits \[B, T, V\] .* got \[1, 41, 16\]"):
        verdict(lambda given: network(given[0]).mT, (X, Y))
    assert verdict(lambda given: {"loss": flat(given)[1], "logits": network(given[0])}, (X, Y)) == wanted
    alone = {"labels": IDS}
    shifted = lambda logits, ids: F.cross_entropy(logits[:, :-1].mT, ids[:, 1:])  # noqa: E731
    assert (
        verdict(lambda given: (shifted(network(given["labels"]), given["labels"]), network(given["labels"])), alone)
        == wanted
    )


def test_a_mask_of_every_pair_in_the_batch() -> None:
    network, causal = Decoder(0), torch.ones(B, T, T, dtype=torch.bool).tril()
    for mask, wanted in ((causal, OBEYS), (torch.ones_like(causal), BROKEN)):
        batch = {"x": X, "y": Y, "mask": mask[:, None]}
        assert verdict(lambda given: each(network(given["x"], given["mask"]), given["y"]), batch) == wanted


def test_a_loss_of_two_targets_at_each_position() -> None:
    def loss(given: dict[str, Tensor]) -> Tensor:
        found = each(Decoder(0)(given["x"]), given["y"])
        return found + F.pad(found[:, 1:], (0, 1))

    report = unmask.check_loss(loss, {"x": X, "y": Y}, vocabulary=V)
    assert (report.verdict, "for another target" in str(report)) == (CANNOT_TELL, True), report
    with_both = unmask.check_loss(
        lambda given: torch.cat([loss(given), loss(given)], 1), {"x": X, "y": Y}, vocabulary=V
    )
    assert f"expected the loss of each of {T} tokens, got {2 * T}" in str(with_both)


def test_targets_that_stand_where_they_are_read() -> None:
    """decoder_input_ids holds the targets without a shift."""
    network = Decoder(0)
    batch = {"labels": IDS, "decoder_input_ids": IDS.clone()}
    for fn in (
        lambda given: each(network(given["decoder_input_ids"]), given["labels"]),
        lambda given: F.cross_entropy(network(given["decoder_input_ids"]).mT, given["labels"]),
    ):
        report = unmask.check_loss(fn, batch, vocabulary=V)
        assert (report.verdict, "that decoder_input_ids holds at their own" in str(report)) == (CANNOT_TELL, True), (
            report
        )


@pytest.mark.parametrize("prompt", [7, 9])
def test_a_prompt_that_a_mask_of_the_loss_leaves_out(prompt: int) -> None:
    """The prompt is read in both directions, as in a prefix language model; the loss begins at position 7."""
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    mask[:prompt, :prompt] = True
    counted = (torch.arange(T) >= 7).float().expand(B, T)

    def losses(given: Any) -> tuple[Tensor, Tensor]:
        logits = Decoder(0)(given[0], mask)
        return each(logits, given[1]) * given[2], logits

    wanted = OBEYS if prompt == 7 else BROKEN
    assert verdict(lambda given: losses(given)[0], (X, Y, counted)) == wanted
    assert verdict(lambda given: (losses(given)[0].mean(), losses(given)[1]), (X, Y, counted)) == wanted


def test_a_masked_language_model_that_masks_its_own_input() -> None:
    chosen = torch.zeros(1, T, dtype=torch.bool)
    chosen[:, [2, 3, 7, 11]] = True

    def losses(ids: Tensor, peek: bool) -> tuple[Tensor, Tensor]:
        logits = Decoder(T)(ids.masked_fill(chosen & (not peek), 0))
        return each(logits, ids) * chosen, logits

    for peek, wanted in ((False, (OBEYS,)), (True, (BROKEN, CANNOT_TELL))):
        assert verdict(lambda given, peek=peek: losses(given["input_ids"], peek)[0], {"input_ids": X}) in wanted
        assert verdict(lambda given, peek=peek: losses(given["input_ids"], peek), {"input_ids": X}) in wanted


def test_a_term_that_reads_later_tokens_and_no_target() -> None:
    def mean(given: dict[str, Tensor], later: int = 0) -> Tensor:
        logits = Decoder(later)(given["x"])
        return F.cross_entropy(logits.mT, given["y"]) + logits.logsumexp(-1).square().mean() / 100

    report = unmask.check_loss(mean, {"x": X, "y": Y}, vocabulary=V)
    assert (report.verdict, "for another target" in str(report)) == (CANNOT_TELL, True), report
    assert unmask.check_loss(lambda given: mean(given, 1), {"x": X, "y": Y}, vocabulary=V).verdict != OBEYS


@pytest.mark.parametrize("ignored", [slice(None, 4), slice(5, 9), slice(11, None), slice(3, 4)])
@pytest.mark.parametrize(("later", "wanted"), [(0, OBEYS), (1, BROKEN)])
def test_the_losses_of_counted_tokens_alone(ignored: slice, later: int, wanted: str) -> None:
    labels = Y.clone()
    labels[:, ignored] = -100

    def loss(given: tuple[Tensor, Tensor]) -> Tensor:
        counted = given[1] >= 0
        return F.cross_entropy(Decoder(later)(given[0])[counted], given[1][counted], reduction="none")

    assert verdict(loss, (X, labels)) == wanted


def test_inputs_and_targets_the_wrong_way_round() -> None:
    network = Decoder(0)
    for fn in (
        lambda given: each(network(given[0]), given[1]),
        lambda given: F.cross_entropy(network(given[0]).mT, given[1]),
        lambda given: (network(given[0]), each(network(given[0]), given[1]).mean()),
    ):
        assert verdict(fn, (X, Y)) == OBEYS
        assert verdict(fn, (Y, X)) == BROKEN


def test_what_is_read_and_was_not_changed_is_said() -> None:
    noised = X.clone()
    noised[:, 5] = (noised[:, 5] + 1) % V
    for read, said in ((X, False), (noised, True)):
        report = unmask.check_loss(
            lambda given: each(Decoder(0)(given["x"]), given["y"]), {"x": read, "y": Y}, vocabulary=V
        )
        assert (report.verdict, "the inputs were not changed" in str(report)) == (OBEYS, said), report


@pytest.mark.parametrize("name", ["label_ids", "target_ids", "lm_labels", "Labels"])
@pytest.mark.parametrize(("later", "wanted"), [(0, OBEYS), (1, BROKEN)])
def test_targets_by_other_names(name: str, later: int, wanted: str) -> None:
    network = Decoder(later)
    for batch in ({"input_ids": X, name: Y}, {name: Y, "input_ids": X, "target_mask": torch.ones_like(Y)}):
        assert verdict(lambda given: each(network(given["input_ids"]), given[name]), batch) == wanted


@pytest.mark.parametrize(("later", "wanted"), [(0, OBEYS), (T, BROKEN)])
@pytest.mark.parametrize("shape", [(1, None, 2 * V), (2, None, 2 * V), (None, T, T), (None, 2, T, T)])
def test_a_hidden_state_or_weights_beside_a_loss_are_no_logits(later: int, wanted: str, shape: tuple) -> None:
    network = Decoder(later)

    def loss(given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        beside = torch.ones([len(given[0]) if size is None else size for size in shape])
        return each(network(given[0]), given[1]), beside

    assert verdict(loss, (X, Y)) == wanted
    assert verdict(lambda given: (loss(given)[0].mean(), loss(given)[1]), (X, Y)) == wanted
    with pytest.raises(unmask.CannotCheck, match=r"expected logits \[B, T, V\]"):
        verdict(lambda given: torch.stack([loss(given)[0]] * 2, 2), (X, Y))


@pytest.mark.parametrize(("later", "wanted"), [(0, OBEYS), (1, BROKEN)])
def test_ids_alone_whose_shifted_losses_are_filled_up(later: int, wanted: str) -> None:
    def loss(given: dict[str, Tensor]) -> Tensor:
        ids = given["input_ids"]
        return each(Decoder(later)(ids), F.pad(ids[:, 1:], (0, 1), value=-100))

    found = verdict(loss, {"input_ids": X})
    assert found == wanted if later == 0 else found in (BROKEN, CANNOT_TELL)


@pytest.mark.parametrize("many", [1, 2, 3, 4])
def test_too_few_targets_to_be_found_among_the_ids(many: int) -> None:
    labels = Y.where(torch.arange(T) >= T - many, -100)

    def loss(given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        logits = Decoder(T)(given[0])
        return F.cross_entropy(logits.mT, given[1]), logits

    report = unmask.check_loss(loss, (X, labels), vocabulary=V)
    wanted = (BROKEN, False) if many == 4 else (CANNOT_TELL, True)
    assert (report.verdict, f"too few targets in the row ({many})" in str(report)) == wanted, report


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("later", [-1, 1])
def test_a_mean_whose_decoder_reads_neighboring_targets(later: int, reduction: str) -> None:
    """With later=1 each position reads the next target, which is no target where all others are ignored."""
    network = Decoder(0)

    def loss(given: dict[str, Tensor]) -> Tensor:
        read = F.pad(given["labels"].clamp(min=0), (-later, later))
        logits = network(read, torch.eye(T, dtype=torch.bool), given["source"])
        return F.cross_entropy(logits.mT, given["labels"], reduction=reduction)

    report = unmask.check_loss(loss, {"source": X[:, :5], "labels": Y}, vocabulary=V)
    assert (report.verdict, "a mean hides" in str(report)) == (CANNOT_TELL, True), report


@pytest.mark.parametrize("later", [0, T])
def test_losses_divided_by_the_number_of_those_that_count(later: int) -> None:
    """More targets count where the check puts others in place of the padding."""

    def loss(given: tuple[Tensor, Tensor], divides: bool) -> Tensor:
        losses = F.cross_entropy(Decoder(later)(given[0]).mT, given[1], reduction="none", ignore_index=0)
        return losses / (given[1] != 0).sum(-1, keepdim=True) if divides else losses

    padded = (X.where(torch.arange(T) < T - 3, 0), Y.where(torch.arange(T) < T - 4, 0))
    report = unmask.check_loss(lambda given: loss(given, True), padded, vocabulary=V)
    assert (report.verdict, "multiplies the loss at position 0" in str(report)) == (CANNOT_TELL, True), report
    alone = unmask.check_loss(lambda given: loss(given, False), padded, vocabulary=V)
    assert (alone.verdict == BROKEN) == (later > 0), alone


@pytest.mark.parametrize(("later", "wanted"), [(0, OBEYS), (T, CANNOT_TELL)])
def test_a_prompt_of_vectors_before_the_logits(later: int, wanted: str) -> None:
    """As with PEFT, the labels are filled up by -100 and shifted. These logits, of T + 4 positions, are not judged."""

    def loss(given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        ids, labels = F.pad(given["input_ids"], (4, 0), value=1), F.pad(given["labels"], (4, 0), value=-100)
        logits = Decoder(later)(ids)
        return F.cross_entropy(logits[:, :-1].mT, labels[:, 1:]), logits

    assert verdict(loss, {"input_ids": X, "labels": X.clone()}) == wanted


def test_a_network_that_shifts_its_input_has_not_read_its_targets() -> None:
    def loss(given: dict[str, Tensor], by: int) -> Tensor:
        return each(Decoder(0)(F.pad(given["input_ids"], (by, 0))[:, :T]), given["labels"])

    same = {"input_ids": X, "labels": X.clone()}
    assert verdict(lambda given: loss(given, 1), same) == OBEYS
    report = unmask.check_loss(lambda given: loss(given, 0), same, vocabulary=V)
    assert (report.verdict, "holds at their own positions" in str(report)) == (CANNOT_TELL, True), report


def test_logits_alone_are_taken_to_predict_the_next_token() -> None:
    same = {"input_ids": X, "labels": X.clone()}
    for later, wanted in ((0, OBEYS), (1, BROKEN)):
        report = unmask.check_loss(lambda given: Decoder(later)(given["input_ids"]), same, vocabulary=V)  # noqa: B023
        assert (report.verdict, "no loss beside the logits" in str(report)) == (wanted, True), report
        both = unmask.check_loss(
            lambda given: (Decoder(later)(given["x"]), each(Decoder(later)(given["x"]), given["y"]).mean()),  # noqa: B023
            {"x": X, "y": Y},
            vocabulary=V,
        )
        assert (both.verdict, "no loss beside the logits" in str(both)) == (wanted, False), both


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


def test_a_named_tuple_and_a_batch_encoding() -> None:
    network = Decoder(0)
    assert verdict(lambda given: each(network(given.x), given.y), Pair(X, Y)) == OBEYS
    encoding = transformers.BatchEncoding({"input_ids": X, "labels": Y})
    assert verdict(lambda given: each(network(given.input_ids), given.labels), encoding) == OBEYS
    assert encoding["labels"] is Y


@pytest.mark.parametrize("returned", [1.5, [1.5], (torch.ones(2),)])
def test_what_is_no_tensor_of_a_loss(returned: Any) -> None:
    with pytest.raises(unmask.CannotCheck, match="expected a loss and logits of floating point, got "):
        verdict(lambda given: {"loss": returned, "logits": Decoder(0)(given[0])}, (X, Y))


def test_fewer_losses_with_other_targets() -> None:
    def kept(given: tuple[Tensor, Tensor]) -> Tensor:
        return each(Decoder(0)(given[0]), given[1])[given[1] != 7]

    targets = Y.where(Y != 7, 8)
    report = unmask.check_loss(kept, (X, targets), vocabulary=V)
    assert (report.verdict, "return one for each token" in str(report)) == (CANNOT_TELL, True), report


@pytest.mark.parametrize(("later", "wanted"), [(0, OBEYS), (T, BROKEN)])
def test_a_mean_of_one_target(later: int, wanted: str) -> None:
    source = IDS[:, :T].flip(1)
    labels = Y.where(torch.arange(T) == T - 2, -100)
    batch = {"long": torch.cat([source, X], 1), "labels": labels}

    def loss(given: dict[str, Tensor]) -> Tensor:
        logits = Decoder(0)(given["long"])[:, T:] + 3.0 * F.one_hot(given["labels"].clamp(min=0), V) * (later > 0)
        return F.cross_entropy(logits.mT, given["labels"])

    assert (verdict(loss, batch) == OBEYS) == (wanted == OBEYS)


@pytest.mark.parametrize("dim", [0, 2])
def test_logits_of_several_heads_are_none_of_one(dim: int) -> None:
    def loss(given: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        logits = Decoder(0)(given[0])
        stacked = torch.cat([logits] * 2) if dim == 0 else torch.stack([logits] * 2, dim)
        return {"loss": each(logits, given[1]), "logits": stacked}

    with pytest.raises(unmask.CannotCheck, match=r"expected logits \[B, T, V\] with B = 1, .* got \[[12], "):
        verdict(loss, (X, Y))
