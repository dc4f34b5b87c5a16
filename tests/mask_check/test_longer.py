"""Tests of leaks and missing attention that 24 tokens do not show: found, halved to a pair, and to the shortest row."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from mask_check import longer
from mask_check.check import check
from mask_check.declared import cause_of, declare
from mask_check.findings import BROKEN, OBEYS, CheckReport, verdict_of
from mask_check.prepare import _max_tokens, prepare
from mask_check.sample_networks import SmallConfig, SmallDecoder
from mask_check.subject import CheckedModule, TookTooLong
from tests.mask_check.modules import ReadsAhead, SmallAttention, Written

UNSEEN = "leaks in a longer row between tokens that no position tried separates: use --thorough."


def broken(report: CheckReport) -> list[str]:
    return [finding.law for finding in report.broken]


@pytest.mark.parametrize(("block", "above"), [(64, 64), (64, 70), (100, 129), (7, 300), (512, 511)])
def test_a_leak_that_begins_beyond_a_length(block: int, above: int) -> None:
    report = check(ReadsAhead(block, above))
    assert broken(report) == ["length"]
    finding = report.finding("length")
    assert f"The shortest row that leaks has {above + 1} tokens." in finding.words
    assert finding.pair is not None
    row, column = finding.pair
    assert max(finding.pair) < int(re.match(r"in a row of (\d+) tokens", finding.words)[1])
    assert row < column
    assert row // block == column // block


class ReadsOneAhead(ReadsAhead):
    """A module whose output 100 reads token 103 in rows of more than 103 tokens."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(input_ids.shape[1], input_ids.shape[1]).tril()
        mask[100:101, 103:104] = 1
        return self.head(mask / mask.sum(-1, keepdim=True) @ self.embedding(input_ids))


def test_pairs_that_were_not_tried_are_said_not_to_be_checked() -> None:
    report = check(ReadsOneAhead())
    words = report.finding("length").words
    assert re.fullmatch(r"rows of .*: no leak across \d\d and \d\d of their positions \(all: --thorough\)\.", words)
    assert ("Longer rows", UNSEEN) in report.not_checked
    thorough = check(ReadsOneAhead(), thorough=True)
    assert broken(thorough) == ["length"]
    assert thorough.finding("length").pair == (100, 103)
    sound = check(ReadsAhead(above=9999), tokens=130, thorough=True)
    assert sound.finding("length").words == "rows of 130 tokens: no leak."
    assert UNSEEN not in dict(sound.not_checked).values()


class Tables(SmallAttention):
    """A module with a vocabulary of 50, 300 positions, a square mask of 280, and square weights."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Embedding(300, 32)
        self.register_buffer("allowed", torch.ones(280, 280).tril())


@pytest.mark.parametrize(("device", "most", "longest"), [("cpu", 0, 520), ("cuda", 280, 271)])
def test_on_a_gpu_no_row_is_longer_than_the_tables(device: str, most: int, longest: int) -> None:
    """On a GPU an index out of range ends all work, so the context is not found by trying."""
    trial = prepare(CheckedModule(Tables()), torch.arange(24))
    subject: Any = SimpleNamespace(config=None, inner=Tables(), device=torch.device(device))
    assert _max_tokens(subject, 50) == most
    assert max(longer._lengths(trial, most)) == longest  # 8 positions spared, no whole blocks


@pytest.mark.parametrize("error", [TookTooLong("stopped"), MemoryError("stopped"), RuntimeError("stopped")])
def test_a_leak_is_one_although_it_cannot_be_narrowed_down(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise error

    monkeypatch.setattr(longer, "_leak", stopped)
    report = check(ReadsAhead(64, 64))
    assert broken(report) == ["length"]
    words = report.finding("length").words
    assert re.search(r"in a row of 130 tokens output \d+ changes by .* if tokens \d+ to 129", words)
    assert words.endswith("The token was not found: stopped.")


def test_what_lies_within_blocks_is_said() -> None:
    assert "All of them lie within blocks of 64 tokens" in check(ReadsAhead(64, 64)).finding("length").words


class ReadsTwoAhead(nn.Module):
    """A module of two layers, the mask of each with its diagonal two positions too far right."""

    def __init__(self, length: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(31, 16), nn.Linear(16, 31)
        self.register_buffer("mask", torch.ones(length, length).tril(2))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        mask = self.mask[: input_ids.shape[1], : input_ids.shape[1]]
        mean = mask / mask.sum(-1, keepdim=True)
        return self.head(mean @ mean @ self.embedding(input_ids))


@pytest.mark.parametrize("length", [14, 15, 30, 31, 63])  # at these, every cut may be the last token of a block
def test_nothing_is_said_of_blocks_unless_their_borders_were_tried(length: int) -> None:
    words = longer.quick_check(ReadsTwoAhead(length), length=length).findings[0].words
    assert "within blocks" not in words, words
    assert "which its mask blocks" in words


def test_quick_names_blocks_whose_borders_were_tried() -> None:
    assert "within blocks of 64 tokens" in longer.quick_check(ReadsAhead(64, 0)).findings[0].words


def test_a_window_that_is_not_declared() -> None:
    unsaid = check(ReadsAhead(above=9999, past=100))
    words = "rows of 130 and 520 tokens: no leak across 11 and 13 of their positions (all: --thorough). Outputs read no"
    assert unsaid.finding("length").words.startswith(words)
    assert (unsaid.longer, ("Longer rows", UNSEEN) in unsaid.limits) == ((130, 520), True)
    report = check(ReadsAhead(above=9999, past=100), mask="causal")
    assert broken(report) == ["length"]
    assert report.finding("length").pair == (128, 28)
    assert check(ReadsAhead(above=9999, past=100), mask="window:100").obeys


def test_a_window_wider_than_declared() -> None:
    report = check(ReadsAhead(above=9999, past=101), mask="window:100")
    assert broken(report) == ["length"]
    row, column = report.finding("length").pair or (0, 0)
    assert row - column == 100
    assert "shortest row that leaks has 101 tokens" in report.finding("length").words
    assert "the window is one token too wide" in report.finding("length").words


def test_the_verdict_states_the_lengths() -> None:
    report = check(ReadsAhead(above=9999))
    assert (report.obeys, report.longer) == (True, (130, 520))
    assert verdict_of(report) == "It obeys its mask on the rows checked, of 24, 130 and 520 tokens."
    report = check(ReadsAhead(7, 300))  # the leaking row is one of those checked
    assert verdict_of(report) == "It does not obey its mask on the rows checked, of 24, 130 and 520 tokens."
    assert verdict_of(check(ReadsAhead())).endswith("of 24 and 130 tokens.")


@pytest.mark.parametrize(("asked", "lengths"), [({"tokens": 40}, (40,)), ({"tokens": 200}, (130, 200))])
def test_the_longest_is_chosen(asked: dict, lengths: tuple[int, ...]) -> None:
    assert check(ReadsAhead(above=9999), **asked).longer == lengths


def test_a_context_ends_before() -> None:
    assert check(SmallDecoder(SmallConfig(max_position_embeddings=140))).longer == (130, 131)
    assert check(Written(positions=65)).longer == (64,)
    report = check(Written(positions=40))
    assert (report.longer, report.obeys) == ((40,), True)
    assert "a row of 130 tokens raised IndexError" in report.finding("length").words
    assert [words for name, words in report.not_checked if name == "Longer rows"] == [UNSEEN]
    assert check(Written(positions=30)).finding("length").words.startswith("a row of 130 tokens raised")


class EndsAt(ReadsAhead):
    """A module that reads no more than `most` tokens, undeclared. blocks: only multiples of 8."""

    def __init__(self, most: int, *, leaks: bool = True, blocks: bool = False) -> None:
        super().__init__(above=9999)
        self.config = SimpleNamespace(vocab_size=31)
        self.most, self.leaks, self.blocks, self.lengths = most, leaks, blocks, list[int]()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        length = input_ids.shape[1]
        self.lengths.append(length)
        assert length <= self.most
        assert not self.blocks or length % 8 == 0
        mask = torch.ones(length, length).tril()
        if self.leaks and length > self.most - 9:
            mask[:, self.most - 10] = 1
        return self.head(mask / mask.sum(-1, keepdim=True) @ self.embedding(input_ids))


@pytest.mark.parametrize("most", [37, 128, 150, 200, 256, 333, 512])
def test_a_row_as_long_as_it_takes_is_read_where_a_longer_one_is_refused(most: int) -> None:
    module = EndsAt(most)
    assert broken(check(module)) == ["length"]
    report = check(EndsAt(most, leaks=False))
    assert report.obeys
    assert max(report.longer) == most // 8 * 8
    assert len({one for one in module.lengths if one > most}) <= 7  # lengths that were refused
    blocks = {min(most, 128) // 8 * 8, most // 8 * 8}
    assert check(EndsAt(most, leaks=False, blocks=True)).longer == tuple(sorted(blocks))


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (None, ["rows of more than 131 tokens: use --tokens 132 or more.", UNSEEN]),
        (140, [UNSEEN]),
        (5, ["no row of more than 24 tokens was asked for.", "rows of more than 24 tokens: use --tokens 25 or more."]),
    ],
)
def test_more_tokens_are_suggested_up_to_the_context(tokens: int | None, said: list[str]) -> None:
    report = check(SmallDecoder(SmallConfig(max_position_embeddings=140)), tokens=tokens)
    assert [words for name, words in report.not_checked if name == "Longer rows"] == said


@pytest.mark.parametrize("stopped", [TookTooLong("stopped"), MemoryError("stopped")])
def test_more_tokens_are_not_suggested_where_time_or_memory_did_not_suffice(
    stopped: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(*_: object) -> None:
        raise stopped

    monkeypatch.setattr(longer, "_judge", judge)
    report = check(SmallDecoder(SmallConfig(sliding_window=30)), length=24)
    assert [words for name, words in report.not_checked if name == "Longer rows"] == ["stopped"]


def test_every_token_is_changed_by_itself() -> None:
    for thorough, alone in ((False, set(longer.CUTS) - {256, 511}), (True, set(range(130)))):
        module, seen = ReadsAhead(above=9999), []
        module.register_forward_pre_hook(
            lambda _, __, given, seen=seen: seen.append(given["input_ids"]), with_kwargs=True
        )
        check(module, tokens=130, thorough=thorough)
        rows = [ids[0] for ids in seen if ids.shape == (1, 130)]
        changed = [(row != rows[1]).nonzero().flatten().tolist() for row in rows]
        assert alone <= {one[0] for one in changed if len(one) == 1} <= alone | {129}


@pytest.mark.parametrize(
    ("mask", "shift", "words"),
    [
        ("causal", 1, "diagonal lies one position too far right"),
        ("causal", 24, "no causal mask (is_causal is not set"),
        ("causal", 5, "over all layers, the masks' diagonals lie 5 positions too far right"),
        ("window:4", -4, "one token too wide"),
        ("window:4", -9, ""),
    ],
)
def test_causes(mask: str, shift: int, words: str) -> None:
    declared = declare(None, 24, mask)
    row = torch.arange(24)
    apart = row - row[:, None]  # token minus output
    seen = (apart <= shift) & (apart > 0) if shift > 0 else (apart >= shift) & (apart < 0)
    leaks = [(i, j) for i, j in (seen & ~declared.reach).nonzero().tolist()]
    assert words in cause_of(leaks, declared)
    assert bool(words) == bool(cause_of(leaks, declared))


class Filled(SmallAttention):
    """The same layer `layers` times; scores of keys `ahead` or more positions after the query are `fill`."""

    def __init__(self, ahead: int, fill: float, layers: int) -> None:
        super().__init__()
        self.ahead, self.fill, self.layers = ahead, fill, layers

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x, length = self.embed(input_ids), input_ids.shape[1]
        later = torch.ones(length, length, dtype=torch.bool).triu(self.ahead)
        for _ in range(self.layers):
            q, k, v = self.qkv(x).chunk(3, -1)
            x = x + self.out((q @ k.mT / 32**0.5).masked_fill(later, self.fill).softmax(-1) @ v)
        return self.head(x)


@pytest.mark.parametrize(
    ("ahead", "fill", "layers", "words"),
    [
        (1, -10.0, 1, "blocked scores too close to 0, such as -10"),
        (0, -1e9, 2, "a row in which every key is blocked with a finite value"),
        (0, -1e9, 1, "no other output reads a later one. Likely cause: every key of its row is blocked"),
    ],
)
def test_causes_of_finite_values_in_blocked_cells(ahead: int, fill: float, layers: int, words: str) -> None:
    assert words in check(Filled(ahead, fill, layers)).finding("reach").words
    assert check(Filled(1, -1e9, layers)).obeys


class OneOutput(ReadsAhead):
    """A module whose output 63 also reads tokens 64 to 100, the last one most, in rows of more than 100 tokens."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        length = input_ids.shape[1]
        mask = torch.ones(length, length).tril()
        if length > 100:
            mask[63, 64:100], mask[63, 100] = 0.01, 1.0
        return self.head(mask / mask.sum(-1, keepdim=True) @ self.embedding(input_ids))


def test_a_leak_of_one_output_is_narrowed_to_what_moves_it_most_and_is_no_diagonal() -> None:
    finding = check(OneOutput()).finding("length")
    assert finding.pair == (63, 100)
    assert "shortest row that leaks has 101 tokens" in finding.words
    by_itself = check(OneOutput(), tokens=110, thorough=True).finding("length")  # each token alone, from 0 on
    quick_check = longer.quick_check(OneOutput()).findings[0]
    assert quick_check.verdict == BROKEN
    assert not any("Likely cause" in one.words for one in (finding, by_itself, quick_check))
    for declared, pairs in (("causal", [(3, 4)]), ("causal", [(3, 4), (3, 5)]), ("window:4", [(9, 5)])):
        assert not cause_of(pairs, declare(SmallConfig(), 24, declared))


def test_diagonals_of_several_layers_are_named_together() -> None:
    words = check(ReadsTwoAhead(24)).finding("reach").words
    assert "Outputs read the next 4 tokens, and none after them. Likely cause" in words
    assert "Outputs read the next 4 tokens" in longer.quick_check(ReadsTwoAhead(130)).findings[0].words
    band = [(row, column) for row in range(24) for column in range(row + 1, min(row + 5, 24))]  # 86 pairs
    declared = declare(None, 24, "causal")
    assert "next 4 tokens" in cause_of(band[:-4], declared)  # their effect may be smaller than rounding
    assert not cause_of(band[:-5], declared)


@pytest.mark.parametrize("size", [20, 32, 64, 512])
def test_blocks_are_not_taken_for_diagonals(size: int) -> None:
    tried = [token for token in (1, 3, 7, 15, 31, 63, 127, 511) if (token + 1) % size == 0 or token < size]
    pairs = [(row, token) for token in tried for row in range(token // size * size, token)]
    assert "diagonals" not in cause_of(pairs, declare(None, 520, "causal"), tried=tried)


class Centred(SmallAttention):
    """Attention whose scores are centered over all queries, later ones included."""

    def weights(self, scores: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        return super().weights(scores - scores.mean(1, keepdim=True), allowed)


@pytest.mark.parametrize("judge", [check, longer.quick_check])
def test_an_operation_over_the_row_before_the_mask_is_named(judge: Callable) -> None:
    """The first output reads one key, whose weight is 1 whatever its score."""
    assert "such as a mean or a norm of its queries or keys" in judge(Centred()).finding("reach").words
    assert "no causal mask (is_causal is not set" in judge(Filled(200, 0.0, 1)).finding("reach").words


def test_quick_shows_the_largest_violation() -> None:
    finding = longer.quick_check(OneOutput()).findings[0]
    assert finding.pair == (63, 65)  # the last half of the row begins there
    assert f"output 63 changes by {finding.amount:.3g} if the tokens from 65 on" in finding.words
    without_number = torch.full((2, 4), torch.inf)
    parts, declared = [slice(1, 4), slice(0, 2)], declare(None, 4, "causal")
    assert longer._judge_quick(without_number, parts, declared, 0.1, 0.0).pair == (0, 1)


def test_pairs_of_tokens_that_see_each_other_are_no_diagonal() -> None:
    leaks = [(token - 1, token) for token in range(1, 24, 2)]
    assert not cause_of(leaks, declare(None, 24, "causal"))


class CountsTokens(ReadsAhead):
    """A module with a buffer that every forward writes into, as experts that count their tokens do."""

    def __init__(self) -> None:
        super().__init__(above=9999)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        self.seen += input_ids.numel()
        return super().forward(input_ids)


@pytest.mark.parametrize("judge", [check, longer.quick_check])
def test_what_a_forward_counts_is_counted_no_more_afterwards(judge: Callable) -> None:
    module = CountsTokens()
    own = module.seen
    assert judge(module).finding("reach").verdict == OBEYS
    assert module.seen is own
    assert own == 0


class OneAhead(ReadsAhead):
    """A mean over the tokens before a token, the token itself and the next one."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        length = input_ids.shape[1]
        mask = torch.ones(length, length).tril(1)
        return self.head(mask / mask.sum(-1, keepdim=True) @ self.embedding(input_ids))


def test_a_diagonal_is_named_by_quick_too_and_pairs_that_see_each_other_are_none() -> None:
    assert "off by one" in longer.quick_check(OneAhead()).findings[0].words
    assert "Likely cause" not in longer.quick_check(ReadsAhead(2, 0)).findings[0].words


def test_the_short_row_is_enough_where_it_leaks() -> None:
    report = check(ReadsAhead(8, 8))
    assert report.finding("reach").verdict == BROKEN
    assert "leaks already" in report.finding("length").words
