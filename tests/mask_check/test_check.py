"""Tests of what a check does to a module, and of its messages about modules that it cannot check."""

import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import unmask
from i18n import say, spoken
from mask_check import prepare
from mask_check.check import check, check_checkpoint
from mask_check.findings import BROKEN, CANNOT_TELL, DOES_NOT_APPLY, OBEYS, CannotCheck
from mask_check.longer import quick_check
from mask_check.sample_networks import SmallConfig, SmallDecoder, SmallOutput
from mask_check.samples import SAMPLES
from mask_check.subject import TookTooLong, max_difference
from model.base import CHECKPOINTS
from model.errors import CheckpointError
from model.huggingface import own_network
from serving.settings import Settings
from tests.mask_check.modules import Mixer, Nano, SmallAttention, Written
from tests.model.huggingface.families import random_network

IDS = [3, 4, 7, 1, 2, 5, 6]
TRIANGLE = torch.ones(7, 7).tril()


class Raises(SmallDecoder):
    def forward(self, input_ids: Tensor) -> SmallOutput:  # type: ignore[override]
        raise RuntimeError("the weights are on another device")


class GivesNaN(SmallDecoder):
    def forward(self, input_ids: Tensor) -> Tensor:  # type: ignore[override]
        logits = super().forward(input_ids).logits
        logits[:, 5:] = torch.nan
        return logits


class LastOnly(SmallDecoder):
    def forward(self, input_ids: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(input_ids).logits[:, -1:]


class WantsAnImage(SmallDecoder):
    def forward(self, pixel_values: Tensor, input_ids: Tensor) -> SmallOutput:  # type: ignore[override]
        return super().forward(input_ids)


class Settles(SmallDecoder):
    """A decoder whose outputs differ at every call, less each time, without random numbers."""

    calls = 0

    def forward(self, input_ids: Tensor) -> Tensor:  # type: ignore[override]
        self.calls += 1
        return super().forward(input_ids).logits + 1 / self.calls**2


class Counts(SmallDecoder):
    """A decoder whose outputs differ at every call, by as much at the last call as at the first."""

    calls = 0

    def forward(self, input_ids: Tensor) -> Tensor:  # type: ignore[override]
        self.calls += 1
        return super().forward(input_ids).logits + self.calls


class Normed(SmallDecoder):
    """A decoder with batch normalization, which updates its statistics in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.batch_norm = nn.BatchNorm1d(self.config.hidden_size)

    def embed(self, ids: Tensor) -> Tensor:
        return self.batch_norm(super().embed(ids).transpose(1, 2)).transpose(1, 2)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Raises(), "raised RuntimeError on 24 tokens: the weights are on another device"),
        (GivesNaN(), "not finite .* from position 5 on"),
        (LastOnly(), r"logits of every position, \[1, 24, V\], .* got \[1, 1, 53\]"),
        (WantsAnImage(), "needs pixel_values"),
        (nn.Conv1d(3, 5, 1), "raised"),
        (Written("dropout"), r"same 24 tokens give outputs that differ .*: dropout .* is active\. F.dropout needs"),
        (Counts(), "same 24 tokens give outputs that differ by 1 .* more than rounding explains"),
        (Settles(), "same 24 tokens give outputs that differ by .* more than rounding explains"),
        (Written("batch_first", positions=64).mask_by_length(), r"raised .*\. layer.self_attn has batch_first=False"),
    ],
)
def test_what_cannot_be_checked_is_said_in_a_sentence(module: nn.Module, words: str) -> None:
    with pytest.raises(CannotCheck, match=words):
        check(module)


@pytest.mark.parametrize("ids", [[1], [0, 53], [-1, 2]])
def test_ids_that_the_module_does_not_have(ids: list[int]) -> None:
    with pytest.raises(CannotCheck, match=r"expected (at least 2 ids from 0 to 52|a length of at least 2)"):
        check(SmallDecoder(), ids=ids)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"ids": [0.5, 2.0]}, r"expected ids as whole numbers \[T\], got float32 \[2\]"),
        ({"ids": [[1, 2], [3, 4]]}, r"whole numbers \[T\], got int64 \[2, 2\]"),
        ({"ids": "abc"}, r"whole numbers \[T\], got 'abc'"),
        ({"length": 1}, "expected a length of at least 2 tokens, got 1"),
        ({"length": 24.0}, "expected a length of at least 2 tokens, got 24.0"),
        ({"length": 97}, "expected at most 96 tokens, which is its max_position_embeddings, got 97"),
        ({"ids": [1] * 97}, "expected at most 96 tokens"),
        ({"tokens": 97}, "expected at most 96 tokens, which is its max_position_embeddings, got 97"),
        ({"tokens": 1}, "expected a length of at least 2 tokens, got 1"),
        ({"seed": -1}, "expected a seed from 0 to"),
        ({"seed": "a"}, "expected a seed from 0 to .* got 'a'"),
        ({"seconds": math.nan}, "expected a number of seconds, got nan"),
        ({"mask": 3}, 'expected a mask "causal", .* got 3'),
        ({"mask": [1, 2]}, r"expected a mask bool \[24, 24\] .* got int"),
        ({"mask": np.ones((3, 3), bool)}, r"expected a mask bool \[24, 24\] .* got torch.bool \[3, 3\]"),
        ({"kernels": ("foo", "eager")}, "attention kernels out of eager, sdpa, flex_attention, got 'foo'"),
        ({"kernels": "eager"}, "expected a tuple of attention kernels .* got 'eager'"),
        ({"kernels": ()}, r"expected a tuple of attention kernels .* got \(\)"),
    ],
)
def test_what_is_asked_for_wrongly_is_said_before_anything_is_run(asked: dict, words: str) -> None:
    module = SmallDecoder()
    module.register_forward_pre_hook(lambda *_: pytest.fail("it was run"))
    with pytest.raises(CannotCheck, match=words):
        check(module, **asked)


def test_no_more_tokens_than_memory_is_free_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotCheck, match=r"expected fewer than 10,000,000 tokens: about [\d,.]+ GB would be needed"):
        check(Written(), length=10_000_000)
    with pytest.raises(CannotCheck, match=r"expected fewer than 1,000,000,001 tokens"):
        check(Written(), tokens=10**9 + 1)
    monkeypatch.setattr(prepare.machine, "free_bytes", lambda: 5e6)
    assert check(Written(), length=24).length == 24
    with pytest.raises(CannotCheck, match=r"expected fewer than 64 tokens: .* 0.0 GB are free"):
        check(Written(), length=64)


def test_more_tokens_than_it_reads_without_a_configuration() -> None:
    assert check(Written(), length=64).obeys
    with pytest.raises(CannotCheck, match="raised IndexError on 65 tokens, and none on 3: index out of range"):
        check(Written(), length=65)


@pytest.mark.parametrize(
    ("mistake", "broken", "words"),
    [
        ("", [], "the row is the same among 4 other rows"),
        ("batch norm", ["reach", "gradients", "batch"], "norm has track_running_stats=False"),
        ("batch_first", ["batch"], "layer.self_attn has batch_first=False"),
    ],
)
def test_rows_that_change_each_other_are_found_and_kept_apart(mistake: str, broken: list[str], words: str) -> None:
    """All other laws are judged without the effect of a row's neighbors."""
    report = check(Written(mistake))
    assert [finding.law for finding in report.broken] == broken
    assert words in report.finding("batch").words
    if mistake == "batch_first":  # in a single row, each token attends to itself only
        assert report.finding("reach").verdict == CANNOT_TELL
        assert np.array_equal(report.mask.reaches, np.eye(24, dtype=bool))


def test_rows_of_a_batch_that_mix_break_that_law_alone() -> None:
    assert [finding.law for finding in check(SAMPLES["rows"].make()).broken] == ["batch"]


def test_a_forward_as_nanogpts_gives_all_positions_with_targets() -> None:
    assert Nano()(torch.tensor([IDS]))[0].shape == (1, 1, 31)
    report = check(Nano())
    assert (report.obeys, report.length, report.finding("reach").verdict) == (True, 24, OBEYS)
    assert [finding.law for finding in check(Nano(causal=False)).broken] == ["reach", "gradients"]
    with pytest.raises(CannotCheck, match="expected at most 32 tokens, which is its block_size, got 33"):
        check(Nano(), length=33)


def test_a_time_limit() -> None:
    for seconds in (0.0, 0.001):
        with pytest.raises(TookTooLong, match=f"stopped after {seconds:g} s"):
            check(SmallDecoder(), seconds=seconds)


def test_the_module_is_left_as_it_was() -> None:
    module = Normed()
    module.train()
    module.blocks[1].eval()
    modes = [part.training for part in module.modules()]
    before = {name: (tensor.clone(), tensor._version) for name, tensor in module.state_dict().items()}
    check(module)
    assert [part.training for part in module.modules()] == modes
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name][0]) and tensor._version == before[name][1]  # noqa: PT018
    assert module.dropout.p == 0.1
    assert module.config._attn_implementation == "eager"
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not any(part._forward_hooks for part in module.modules())


def test_progress_names_every_law_before_its_forwards() -> None:
    told: list[tuple[str, float]] = []
    report = check(SmallDecoder(), progress=lambda law, share: told.append((law, share)))
    asked = [finding.name for finding in report.findings if finding.verdict != DOES_NOT_APPLY]
    assert list(dict.fromkeys(law for law, _ in told)) == ["Effect of rounding", *asked]
    assert [share for _, share in told] == sorted(share for _, share in told)
    assert len(told) >= report.forwards  # also called for copies of the module
    assert (told[0][1], told[-1][1] < 1) == (0.0, True)


def test_a_reader_may_end_it_at_any_forward() -> None:
    module = SmallDecoder()
    module.train()
    for last in (0, 30, 90):
        forwards = iter(range(last))

        def show(_law: str, _share: float, left: Iterator[int] = forwards) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt  # not an Exception, like the one by which Streamlit ends a script

        with pytest.raises(KeyboardInterrupt):
            check(module, progress=show)
        assert module.training
        assert module.dropout.p == 0.1
        assert module.config._attn_implementation == "eager"
        assert not any(part._forward_hooks for part in module.modules())


def test_batch_statistics_are_no_eval_mode() -> None:
    assert check(Normed()).finding("training").verdict == BROKEN


def test_the_same_seed_gives_the_same_numbers() -> None:
    one, other, third = (check(SmallDecoder(), seed=seed) for seed in (4, 4, 5))
    assert third.mask is not None
    assert (one.mask.moved == other.mask.moved).all()
    assert one.pieces == other.pieces != third.pieces


def test_a_plain_module_needs_no_configuration() -> None:
    report = check(Mixer(TRIANGLE), ids=IDS)
    assert report.obeys
    assert report.declared == "causal"
    skipped = {finding.law for finding in report.findings if finding.verdict == DOES_NOT_APPLY}
    assert skipped == {
        "padding-right",
        "padding-left",
        "pad-content",
        "packing",
        "cache",
        "kernels",
        "cross",
        "encoder",
        "length",
        "cross-reach",
        "positions",
        "reuse",
        "last",
        "tree",
        "unpositioned",
        "images",
        "layers",
        "checkpointing",
        "compile",
    }


def test_what_is_tolerated_is_small_for_a_module_that_repeats_itself() -> None:
    loudest = check(Mixer(TRIANGLE * 1.0), ids=IDS).noise.repeated
    assert loudest <= torch.finfo(torch.float32).eps * 7 * 10


def test_a_leak_smaller_than_the_noise_is_not_claimed() -> None:
    mix = TRIANGLE.clone()
    mix[0, 6] = 1e-9
    report = check(Mixer(mix), ids=IDS)
    assert report.finding("reach").verdict == OBEYS


def test_two_numbers_that_are_none_are_infinitely_apart() -> None:
    nan, inf = math.nan, math.inf
    one = torch.tensor([[1.0, 2.0], [nan, 0.0], [-inf, 0.0], [-inf, 0.0]])
    other = torch.tensor([[1.5, 2.0], [nan, 0.0], [-inf, 0.25], [3.0, 0.0]])
    assert max_difference(one, other).tolist() == [0.5, inf, 0.25, inf]


def test_a_law_that_raises_cannot_tell() -> None:
    class Strict(SmallDecoder):
        def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SmallOutput:  # type: ignore[override]
            if attention_mask is not None:
                raise ValueError("no masks today")
            return super().forward(input_ids)

    report = check(Strict())
    found = report.finding("padding-right")
    assert found.verdict == CANNOT_TELL
    assert "no masks today" in found.words
    assert report.obeys


def test_a_context_that_is_short_is_kept_to() -> None:
    report = check(SmallDecoder(SmallConfig(max_position_embeddings=9)))
    assert (report.length, report.obeys) == (9, True)


def test_enough_tokens_to_see_past_the_window() -> None:
    assert check(SmallDecoder(SmallConfig(sliding_window=11))).length == 34  # 3 layers reach 30 back, and 4 more


def test_why_it_cannot_be_done_is_read_in_any_language() -> None:
    """A page receives the message from another process, and another user may wait for the same check."""
    with pytest.raises(ValueError, match=r"runs those of transformers\. Choose another model$") as raised:
        check_checkpoint(print, "dates", CHECKPOINTS / "dates", (1, 2), ("a", "b"), "float32", 60.0)
    (words,) = pickle.loads(pickle.dumps(raised.value)).args  # noqa: S301 - pickled in this line
    with spoken("zh"):
        assert "Choose" not in say(words)


def test_two_tokens_have_no_last_three_logits() -> None:
    assert unmask.check("story", ids=[1, 500]).obeys


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_saved_without_its_head_its_hidden_states_are_compared_and_it_says_so(name: str, tmp_path: Path) -> None:
    random_network(name).save_pretrained(tmp_path / "whole")
    hf.AutoModel.from_pretrained(tmp_path / "whole").save_pretrained(tmp_path / "headless")
    runs = [check(own_network.load(name, tmp_path / "headless", Settings()), length=8) for _ in range(2)]
    assert runs[0].mask is not None
    assert runs[1].mask is not None
    np.testing.assert_array_equal(runs[0].mask.moved, runs[1].mask.moved)  # no randomly initialized head
    assert "no language-model head" in str(runs[0].limits)
    whole = check(own_network.load(name, tmp_path / "whole", Settings()), length=8)
    assert "no language-model head" not in str(whole.limits)


def test_layers_whose_weights_are_missing_are_refused(tmp_path: Path) -> None:
    network = random_network("llama")
    tensors = {key: one for key, one in network.state_dict().items() if "layers.1.self_attn.q_proj" not in key}
    network.save_pretrained(tmp_path, state_dict=tensors)
    with pytest.raises(CheckpointError, match=r"lacks 1 of the weights .*q_proj"):
        own_network.load("llama", tmp_path, Settings())


def test_a_text_too_short_for_a_property_is_the_reason_that_is_given() -> None:
    """The text has two tokens; the story model does count positions, keep a cache and have a causal mask."""
    report = unmask.check("story", ids=[1, 500])
    words = {finding.law: str(finding.words) for finding in report.findings}
    assert words["reuse"] == words["cache"] == "the text is too short for steps."
    assert words["tree"] == "the text is too short for a draft tree."
    assert "1 of 1 open pair and" in words["reach"]
    assert words["gradients"] == "exactly 0 in 1 of 1 blocked pair."
    assert words["unpositioned"] == words["padding-right"]


class WritesIntoItsIds(SmallDecoder):
    """A correct decoder that clamps its ids in place before it reads them. then: value written to them afterwards."""

    def __init__(self, then: int | None) -> None:
        super().__init__()
        self.then = then

    def forward(self, input_ids: Tensor, **more: Any) -> Any:
        input_ids.clamp_(max=input_ids.max().item())
        found = super().forward(input_ids, **more)
        if self.then is not None:
            input_ids.fill_(self.then)
        return found


@pytest.mark.parametrize("then", [None, 0])
def test_a_module_that_writes_into_its_ids_is_checked(then: int | None) -> None:
    report = check(WritesIntoItsIds(then))
    assert report.obeys, report


def test_a_first_token_of_the_module_s_own_is_no_silence() -> None:
    class BeginsWithItsOwn(SmallAttention):
        def forward(self, input_ids: Tensor) -> Tensor:
            return super().forward(torch.cat([torch.ones_like(input_ids[:, :1]), input_ids[:, 1:]], 1))

    assert quick_check(BeginsWithItsOwn()).obeys


def test_of_a_mask_by_hand_no_longer_row_is_advised() -> None:
    report = check(SmallDecoder(), mask=torch.ones(24, 24).tril().bool())
    assert report.obeys
    assert "use --tokens" not in str(report)
    assert "use --tokens" in str(check(SmallDecoder()))
