"""Tests of padding: rounding that differs because experts receive the pads too is not a leak, a larger change is."""

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from mask_check import padding
from mask_check.check import check
from mask_check.findings import BROKEN, CANNOT_TELL, OBEYS, verdict_of
from mask_check.prepare import prepare
from mask_check.subject import CheckedModule
from mask_check.trial import CheckTrial
from tests.mask_check.modules import SmallAttention
from tests.mask_check.test_families import made
from tests.model.huggingface.families import PAIR, random_network

IDS = [5, 9, 4, 7, 11, 8, 6, 14, 12]


def trial_of(name: str) -> CheckTrial:
    return prepare(CheckedModule(random_network(name)), IDS)


@pytest.mark.parametrize(("name", "verdict"), [("mixtral", OBEYS), ("llama", BROKEN)])
def test_a_change_as_small_as_rounding_is_a_leak(name: str, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_of(name)
    small = (trial.noise.beside + trial.tolerance) / 2
    assert trial.noise.beside < small < trial.tolerance
    monkeypatch.setattr(padding, "_moved", lambda *_, **__: torch.full((6,), small))
    assert padding.judge_content(trial).verdict == verdict


@pytest.mark.parametrize("name", ["mixtral", "llama"])
def test_more_than_rounding_is_a_leak_whoever_shares_out_the_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_of(name)
    much = 2 * trial.tolerance
    monkeypatch.setattr(padding, "_moved", lambda *_, **__: torch.full((6,), much))
    assert padding.judge_content(trial).verdict == BROKEN


def test_m2m_100_counts_by_which_ids_are_pads_and_its_encoder_is_sound() -> None:
    network = made(hf.AutoModelForSeq2SeqLM, hf.M2M100Config(**PAIR | {"decoder_start_token_id": 2}))
    finding = check(network).finding("encoder")
    assert finding.verdict not in (BROKEN, CANNOT_TELL), finding.words
    assert "whatever they are" in finding.words


class Learned(SmallAttention):
    """Attention with a table of positions times `scale`: so small that bfloat16 rounds more, or 0 as before training.
    cancels: the table is added and subtracted again, which leaves rounding.
    """

    def __init__(self, scale: float, *, cancels: bool = False) -> None:
        super().__init__()
        self.cancels = cancels
        self.position.weight.data *= scale

    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:  # type: ignore[override]
        places = torch.arange(input_ids.shape[1])[None] if position_ids is None else position_ids
        table = self.position(places)
        x = self.embedding(input_ids)
        x = x + table - table if self.cancels else x + table
        q, k, v = self.qkv(x).chunk(3, -1)
        allowed = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return self.head(x + self.out((q @ k.mT / 32**0.5).masked_fill(~allowed, -torch.inf).softmax(-1) @ v))


class Adapted(Learned):
    """A Learned module with LoRA's two matrices, the second of which is 0 at first."""

    def __init__(self, size: float, *, cancels: bool = False) -> None:
        super().__init__(size, cancels=cancels)
        self.lora_a, self.lora_b = nn.Parameter(torch.ones(32, 2)), nn.Parameter(torch.zeros(2, 50))

    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return super().forward(input_ids, position_ids) + self.embedding(input_ids) @ self.lora_a @ self.lora_b


@pytest.mark.parametrize(
    ("module", "verdict"),
    [
        (Learned(1.0), OBEYS),
        (Learned(0.02).bfloat16(), OBEYS),  # its tolerance exceeds their effect
        (Learned(0.0), CANNOT_TELL),
        (Learned(1.0, cancels=True), BROKEN),  # except for rounding
        (Adapted(1.0, cancels=True), BROKEN),  # the matrix of 0 does not depend on positions
    ],
)
def test_position_ids_that_change_little(module: nn.Module, verdict: str) -> None:
    report = check(module)
    finding = report.finding("positions")
    assert finding.verdict == verdict, finding
    assert report.finding("reach").verdict == OBEYS
    if verdict == CANNOT_TELL:
        assert finding.words == "position_ids change nothing while position.weight is all 0, as before training."
    if verdict == BROKEN:
        assert finding.amount > 0


class Masked(SmallAttention):
    """Attention with a padding mask and positions counted from the first cell. leaves_out: they are counted from the
    first token, which is left out where pads come before it.
    """

    def __init__(self, *, leaves_out: bool) -> None:
        super().__init__()
        self.leaves_out = leaves_out

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        keep = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
        places = torch.arange(input_ids.shape[1]).expand_as(input_ids)
        read = keep.bool()
        if self.leaves_out:
            places = (keep.cumsum(1) - 1).clamp(min=0)
            read = read & ~((places == 0) & (torch.arange(input_ids.shape[1]) > 0))
        x = self.embedding(input_ids) + self.position(places)
        q, k, v = self.qkv(x).chunk(3, -1)
        length = x.shape[1]
        allowed = torch.ones(length, length, dtype=torch.bool).tril() & read[:, None] | torch.eye(length).bool()
        return self.head(x + self.out(self.weights(q @ k.mT / 32**0.5, allowed) @ v))


@pytest.mark.parametrize(
    ("leaves_out", "verdict"), [(False, "In one forward pass in eval mode it obeys"), (True, "It does not obey")]
)
def test_positions_counted_over_pads_are_no_leak_and_a_token_left_out_is_one(leaves_out: bool, verdict: str) -> None:
    report = check(Masked(leaves_out=leaves_out))
    assert [finding.law for finding in report.broken] == ["padding-left"]
    assert verdict_of(report).startswith(verdict)
    assert ("counts positions over pads" in report.broken[0].words) is not leaves_out


class RenamedMask(Masked):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return super().forward(x, mask)


def test_arguments_under_other_names_are_not_said_to_be_missing() -> None:
    report = check(RenamedMask(leaves_out=False))
    for law in ("padding-left", "padding-right", "pad-content", "unpositioned"):
        words = report.finding(law).words
        assert words.startswith("its forward takes no argument named attention_mask: if its padding mask has another")
    assert report.finding("positions").words == "its forward takes no argument named position_ids."
    pair = check(random_network("bart"), ids=IDS, tokens=len(IDS))
    assert "an encoder-decoder's padding is in its source" in pair.finding("unpositioned").words
