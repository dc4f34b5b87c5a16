"""Tests of loss functions that use the targets they predict, and of sound ones, by what they return."""

import math
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from torch import Tensor

import unmask
from mask_check.findings import BROKEN, CANNOT_TELL, OBEYS, CannotCheck
from tests.mask_check.modules import Nano, ReadsAhead

V, B, T = 31, 2, 12
IDS = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(0))
PAIR = {"input_ids": IDS[:, :-1], "labels": IDS[:, 1:]}


def logits_of(batch: dict[str, Tensor], *, peek: float = 0.0) -> Tensor:
    """Return logits. peek: added to the logit of the target."""
    found = ReadsAhead(above=9999)(batch["input_ids"])
    return found + peek * F.one_hot(batch["labels"].clamp(min=0), V)


def each(batch: dict[str, Tensor], **more: Any) -> Tensor:
    logits = logits_of(batch, **more)
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none").view(
        batch["labels"].shape
    )


def shifted(batch: dict[str, Tensor], *, ahead: bool = False, mean: bool = False) -> Tensor:
    """Return losses whose targets are the ids that follow. ahead: whether every output reads the whole row."""
    ids = batch["input_ids"]
    logits = ReadsAhead(block=99 if ahead else 1, above=0)(ids)[:, :-1]
    losses = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)
    return losses.mean() if mean else losses


def shifts(batch: dict[str, Tensor], *, peek: float = 0.0, **more: Any) -> Tensor:
    """Return a loss as transformers' models do: the labels are the ids, and the loss function shifts them."""
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
    "best of two": (lambda batch: torch.minimum(each(batch), torch.tensor(2.0)), PAIR),  # a floor, as in nanochat
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
    assert re.search("influences its own prediction|changes the (loss|logits)|a mean hides", str(report))


@pytest.mark.parametrize("ignored", [3, int(IDS[0, 4])])
def test_a_target_that_the_loss_ignores_is_named_and_proves_nothing(ignored: int) -> None:
    report = unmask.check_loss(lambda batch: shifts(batch, ignore_index=ignored, reduction="none"), SAME, vocabulary=V)
    assert report.verdict == CANNOT_TELL, report
    assert f"the loss ignores these targets: {ignored}." in str(report)
    mean = unmask.check_loss(lambda batch: shifts(batch, ignore_index=ignored), SAME, vocabulary=V)
    assert (mean.verdict, "a mean hides" in str(mean)) == (CANNOT_TELL, True), mean


def test_what_sums_to_less_is_no_peeking() -> None:
    assert unmask.check_loss(lambda batch: each(batch) + 0.5, PAIR, vocabulary=V).verdict == CANNOT_TELL


@pytest.mark.parametrize("above", [0, 9999])
@pytest.mark.parametrize("seed", range(4))
def test_a_network_that_reads_its_targets_among_its_inputs(above: int, seed: int) -> None:
    """The last id is not an input: a prediction reads its own target only in a row that continues."""
    ids = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(seed))

    def losses(batch: dict[str, Tensor]) -> Tensor:
        logits = ReadsAhead(block=2, above=above)(batch["input_ids"][:, :-1])
        return F.cross_entropy(logits.transpose(1, 2), batch["input_ids"][:, 1:], reduction="none")

    report = unmask.check_loss(losses, {"input_ids": ids}, vocabulary=V)
    assert report.verdict == (BROKEN if above == 0 else OBEYS), report
    assert ("in a row that ends there: a prediction reads its own target." in str(report)) == (above == 0)


@pytest.mark.parametrize("factor", [0.25, 1 / 3, 2])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("peek", [0.0, 0.5, 3.0])
def test_a_loss_divided_for_gradient_accumulation_is_no_leak(factor: float, mean: bool, peek: float) -> None:
    def loss(batch: dict[str, Tensor]) -> Tensor:
        losses = each(batch, peek=peek) * factor
        return losses.mean() if mean else losses

    report = unmask.check_loss(loss, PAIR, vocabulary=V)
    assert not report.obeys
    assert report.verdict == (CANNOT_TELL if peek == 0 or mean else BROKEN) or (peek and factor > 1), report
    assert (f"sum to 1 if the loss is multiplied by {1 / factor:.4g}: return it" in str(report)) == (peek == 0)


@pytest.mark.parametrize("begin", [3, 7, T])
@pytest.mark.parametrize("peek", [0.0, 3.0])
def test_a_prompt_that_the_loss_leaves_out_is_not_asked(begin: int, peek: float) -> None:
    report = unmask.check_loss(lambda batch: each(batch, peek=peek) * (torch.arange(len(batch["labels"][0])) >= begin),
                               PAIR, vocabulary=V)  # fmt: skip
    assert report.verdict == (CANNOT_TELL if begin == T else BROKEN if peek else OBEYS), report
    assert ("the loss does not depend on the target at the positions tried" in str(report)) == (begin == T)
    left_out = "Not judged, because the loss does not depend on the target there: positions 1"
    assert (left_out in str(report)) == report.obeys


@pytest.mark.parametrize("peek", [0.0, 3.0])
def test_a_mean_for_each_row(peek: float) -> None:
    report = unmask.check_loss(lambda batch: each(batch, peek=peek).mean(1), PAIR, vocabulary=V)
    assert report.verdict == (CANNOT_TELL if peek else OBEYS), report


@pytest.mark.parametrize("seed", range(4))
def test_a_mean_by_weights_in_the_batch_is_not_called_broken(seed: int) -> None:
    weights = torch.rand(B, T, generator=torch.Generator().manual_seed(seed)) + 0.1

    def mean(batch: dict[str, Tensor]) -> Tensor:
        kept = batch["weights"][:, : batch["labels"].shape[1]]
        return (each(batch) * kept).sum() / kept.sum()

    report = unmask.check_loss(mean, PAIR | {"weights": weights}, vocabulary=V)
    assert report.verdict == CANNOT_TELL, report
    assert "sum to less than 1" in str(report) or "Return the loss of each token, or logits" in str(report)


def test_equal_losses_of_a_head_that_begins_at_0_obey() -> None:
    assert unmask.check_loss(lambda batch: 0 * each(batch) + math.log(V), PAIR, vocabulary=V).obeys


@pytest.mark.parametrize("batches", [3, 4])
def test_the_loss_of_a_model_of_transformers_divided(batches: int) -> None:
    torch.manual_seed(0)
    network = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=V, n_embd=24, n_layer=1, n_head=2, n_positions=32))
    batch = {"input_ids": IDS, "labels": IDS}
    report = unmask.check_loss(lambda given: network.eval()(**given).loss / batches, batch, vocabulary=V)
    assert report.verdict == CANNOT_TELL
    assert f"multiplied by {batches}:" in str(report)


@pytest.mark.parametrize("peek", [2, 10, 60])
def test_a_leak_that_is_the_same_at_every_position_does_not_obey(peek: float) -> None:
    def loss(batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(peek * F.one_hot(batch["labels"], V).mT.float(), batch["labels"], reduction="none")

    assert not unmask.check_loss(loss, PAIR, vocabulary=V).obeys


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("mean", [False, True])
def test_the_only_tensor_of_a_batch_is_its_own_target(ahead: bool, mean: bool) -> None:
    report = unmask.check_loss(
        lambda batch: shifted({"input_ids": batch["tokens_of_mine"]}, ahead=ahead, mean=mean),
        {"tokens_of_mine": IDS}, vocabulary=V,
    )  # fmt: skip
    assert report.verdict == (CANNOT_TELL if mean else BROKEN if ahead else OBEYS), report


def test_a_batch_without_known_names_says_what_it_holds() -> None:
    words = r"named by targets=, of three tokens or more, in the batch, got words \[2, 12\], next \[2, 12\]"
    with pytest.raises(CannotCheck, match=words):
        unmask.check_loss(each, {"words": IDS[:, 1:], "next": IDS[:, 1:]})


@pytest.mark.parametrize("batch", [{}, {"labels": torch.zeros(3)}, {"input_ids": torch.zeros(1, 2).long()}])
def test_no_targets(batch: dict[str, Tensor]) -> None:
    with pytest.raises(CannotCheck, match="expected targets"):
        unmask.check_loss(each, batch)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((None, PAIR), {}, "expected a function of a batch, and targets by name or number, got None and None"),
        ((each, PAIR), {"targets": ["labels"]}, "expected a function of a batch, and targets by name"),
        (
            (lambda batch: hf.modeling_outputs.CausalLMOutput(logits=IDS[..., None]), PAIR),
            {},
            "expected a loss and logits of floating point, got torch.int64",
        ),
        ((each, 3), {}, "expected a batch as tensors by name or in a row, got 3"),
        ((each, {"labels": torch.zeros(2, 5)}), {}, "expected ids as targets, got torch.float32"),
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


def padded(batch: dict[str, Tensor]) -> Tensor:
    """Return a mean by a mask, 0 if no target counts."""
    targets = batch["labels"][:, 1:]
    losses = shifts(batch, reduction="none")
    counted = (targets != 3).float()
    return (losses * counted).sum() / counted.sum().clamp(min=1)


@pytest.mark.parametrize("labels", [IDS, torch.where(IDS[0, 7] == IDS, 3, IDS)])
def test_a_mean_by_a_mask_of_ones_own(labels: Tensor) -> None:
    """The mask counts targets of -100: if one of the targets does not count, the others change the mean's divisor."""
    report = unmask.check_loss(padded, SAME | {"labels": labels}, vocabulary=V)
    said = "ignores these targets: 3." if labels is IDS else "a mean hides"
    assert (report.verdict, said in str(report)) == (CANNOT_TELL, True), report


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_a_model_that_is_sure_ignores_nothing(reduction: str) -> None:
    sure = 40 * torch.eye(V).roll(3, 1) - 20

    def fn(batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(sure[batch["input_ids"]].transpose(1, 2), batch["labels"], reduction=reduction)

    ids = IDS[:, :T]
    report = unmask.check_loss(fn, {"input_ids": ids, "labels": (ids + 3) % V}, vocabulary=V)
    assert report.verdict == OBEYS, report


def test_a_loss_that_is_the_mean_by_chance_is_not_ignored() -> None:
    count, length = 200, 128
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        table = 0.02 * torch.randn(count, count, generator=generator)
        ids = torch.randint(count, (1, length + 1), generator=generator)
        report = unmask.check_loss(
            lambda batch, table=table: F.cross_entropy(table[batch["x"]].transpose(1, 2), batch["y"]),
            {"x": ids[:, :-1], "y": ids[:, 1:]}, vocabulary=count,
        )  # fmt: skip
        assert report.verdict == OBEYS, (seed, report)


def test_an_ignored_id_that_is_not_among_those_tried_by_chance() -> None:
    count = 3000
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(count, count, generator=generator) + 4 * torch.randn(count, generator=generator)
    ids = torch.randint(1, count, (1, 25), generator=generator)
    ids[:, -9:] = 0
    report = unmask.check_loss(
        lambda batch: F.cross_entropy(table[batch["x"]].transpose(1, 2), batch["y"], ignore_index=0),
        {"x": ids[:, :-1], "y": ids[:, 1:]}, vocabulary=count,
    )  # fmt: skip
    assert report.verdict == CANNOT_TELL, report


@pytest.mark.parametrize("length", [9, 10])
def test_an_encoders_tokens_are_not_cut_with_the_targets(length: int) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 53, "d_model": 16, "d_ff": 32, "d_kv": 8, "num_layers": 1, "num_heads": 2}
    config = hf.T5Config(**sizes, initializer_factor=4.0, decoder_start_token_id=0)
    model = hf.T5ForConditionalGeneration(config).eval()
    batch = {"input_ids": torch.randint(53, (2, length)), "labels": torch.randint(53, (2, 10))}
    assert unmask.check_loss(lambda given: model(**given), batch, vocabulary=53).verdict == OBEYS
    report = unmask.check_loss(lambda given: model(**given).loss, batch, vocabulary=53)
    assert report.verdict == CANNOT_TELL, "its decoder reads the targets that the mean is to leave out"


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_what_rounding_may_be_is_no_leak(reduction: str) -> None:
    def fn(batch: dict[str, Tensor], dtype: torch.dtype = torch.bfloat16) -> Tensor:
        logits = 3 * ReadsAhead(above=9999)(batch["input_ids"]).to(dtype)
        return F.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction=reduction)

    report = unmask.check_loss(fn, PAIR, vocabulary=V)
    assert report.verdict != BROKEN, report
    if report.verdict == CANNOT_TELL:
        assert "the loss is rounded too much (bfloat16): return it in float32." in str(report)
    assert unmask.check_loss(lambda batch: fn(batch, torch.float32), PAIR, vocabulary=V).verdict == OBEYS


ENCODER_DECODERS = {
    "t5": lambda: hf.T5ForConditionalGeneration(
        hf.T5Config(vocab_size=V, d_model=20, d_kv=5, d_ff=33, num_layers=3, num_decoder_layers=2, num_heads=4,
                    decoder_start_token_id=0, pad_token_id=0)
    ),
    "bart": lambda: hf.BartForConditionalGeneration(
        hf.BartConfig(vocab_size=V, d_model=20, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4,
                      decoder_attention_heads=4, encoder_ffn_dim=33, decoder_ffn_dim=33, max_position_embeddings=99)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_logits_may_read_earlier_targets_as_a_decoder_does(name: str) -> None:
    network = ENCODER_DECODERS[name]().eval()
    batch = {"input_ids": IDS[:, :7], "labels": IDS.clamp(min=3)}
    report = unmask.check_loss(lambda given: network(**given), batch, vocabulary=V)
    assert (report.verdict, "with earlier targets" in str(report)) == (OBEYS, True), report

    def leaks(given: dict[str, Tensor], ahead: int) -> Tensor:
        logits = network(**given).logits
        return logits + F.one_hot(given["labels"], V).roll(-ahead, 1) * 0.1

    for ahead in (0, 1):  # by its own target, and by the next one
        report = unmask.check_loss(lambda given, ahead=ahead: leaks(given, ahead), batch, vocabulary=V)
        assert (report.verdict, report.pair) == (BROKEN, (0, 0)), report


@pytest.mark.parametrize(
    ("kept", "named"),
    [(lambda ids: (ids != 4) & (ids != 5), "4 and 5."), (lambda ids: ids >= 9, "0, 1, 2, 3, 4 and 4 more.")],
)
def test_several_targets_that_a_loss_per_token_ignores(kept: Any, named: str) -> None:
    report = unmask.check_loss(lambda given: each(given) * kept(given["labels"]), PAIR, vocabulary=V)
    assert (report.verdict, f"the loss ignores these targets: {named}" in str(report)) == (CANNOT_TELL, True), report
    report = unmask.check_loss(lambda given: each(given, peek=4.0) * kept(given["labels"]), PAIR, vocabulary=V)
    assert report.verdict == BROKEN, report


def test_a_mean_without_the_padding_of_its_own_mask() -> None:
    """The divisor is not the number of targets."""
    padding = torch.ones(B, T)
    padding[0, 8:] = 0

    def mean(given: dict[str, Tensor]) -> Tensor:
        return (each(given) * given["own"]).sum() / given["own"].sum()

    report = unmask.check_loss(mean, {**PAIR, "own": padding}, vocabulary=V)
    assert report.verdict == CANNOT_TELL, report


def test_a_mean_of_predictions_that_read_later_tokens_is_broken() -> None:
    def mean(given: dict[str, Tensor]) -> Tensor:
        logits = ReadsAhead(block=99, above=0)(given["input_ids"])
        return F.cross_entropy(logits.transpose(1, 2), given["labels"])

    report = unmask.check_loss(mean, PAIR, vocabulary=V)
    assert (report.verdict, "the ids that are read hold the targets too" in str(report)) == (BROKEN, True), report


def test_a_module_with_dropout_on_is_not_judged() -> None:
    network = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=V, n_embd=20, n_layer=2, n_head=4))
    calls: list[Any] = [lambda given: network(**given), lambda given: network(**given).loss]
    for call in calls:
        report = unmask.check_loss(call, SAME, vocabulary=V)
        assert (report.verdict, "turn dropout off" in str(report)) == (CANNOT_TELL, True), report
    network.eval()
    assert unmask.check_loss(calls[0], SAME, vocabulary=V).obeys
