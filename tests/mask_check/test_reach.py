"""Tests of the measured influence between tokens, cell by cell, on modules for which it is known."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mask_check import reach
from mask_check.check import check
from mask_check.declared import LayerMask
from mask_check.findings import BROKEN, CANNOT_TELL, DOES_NOT_APPLY, OBEYS, as_text
from mask_check.prepare import prepare
from mask_check.sample_networks import MaskInputs, SmallConfig, SmallDecoder, SmallOutput, SmallPair
from mask_check.samples import SAMPLES
from mask_check.subject import CheckedModule
from tests.mask_check.modules import Mixer, SmallAttention

LENGTH = 13
SOUND = {
    "causal": SmallConfig(),
    "window": SmallConfig(sliding_window=3),
    "chunked": SmallConfig(attention_chunk_size=5),
    "prefix": SmallConfig(prefix_length=6),
    "encoder": SmallConfig(is_causal=False),
    "mixed": SmallConfig(
        num_hidden_layers=2, sliding_window=3, layer_types=["sliding_attention", "bidirectional_attention"]
    ),
}


class AlwaysPacked(SmallDecoder):
    """A decoder that treats every row as three documents, of 4, 7 and the remaining tokens."""

    def forward(self, input_ids: Tensor) -> SmallOutput:  # type: ignore[override]
        sizes = (4, 7, input_ids.shape[1] - 11)
        return super().forward(input_ids, position_ids=torch.cat([torch.arange(size) for size in sizes])[None])


@pytest.mark.parametrize("name", SOUND)
def test_the_measured_mask_is_the_declared_one_cell_for_cell(name: str) -> None:
    report = check(SmallDecoder(SOUND[name]))
    np.testing.assert_array_equal(report.mask.reaches, report.mask.declared)
    assert report.finding("reach").verdict == OBEYS
    assert report.finding("gradients").verdict == OBEYS
    assert report.obeys


class ReadsPrefix(SmallAttention):
    def weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
        allowed[:4, :4] = True
        return super().weights(scores, allowed)


def test_a_prefix_that_is_a_token_short_is_found() -> None:
    assert check(ReadsPrefix(), mask="prefix:4").obeys
    for declared, pair in ((5, (0, 4)), (7, (0, 4))):
        finding = check(ReadsPrefix(), mask=f"prefix:{declared}").finding("gradients")
        assert (finding.verdict, finding.pair) == (BROKEN, pair)
    short = check(ReadsPrefix(), mask="prefix:5").finding("gradients")
    assert "nor has any other output before that token" in str(short)
    assert "4 of 286" in str(short)


def test_packed_documents_are_blocks() -> None:
    expected = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    for begin, end in ((0, 4), (4, 11), (11, 13)):
        expected[begin:end, begin:end] = torch.ones(end - begin, end - begin).tril().bool()
    report = check(AlwaysPacked(), mask=expected, length=LENGTH)
    np.testing.assert_array_equal(report.mask.reaches, expected.numpy())
    assert report.obeys


def test_the_decoder_of_a_pair_is_causal() -> None:
    report = check(SmallPair())
    np.testing.assert_array_equal(report.mask.reaches, np.tri(report.length, dtype=bool))
    assert report.kind == "encoder-decoder"


def test_how_far_an_output_moves_is_the_largest_substitutes_change() -> None:
    mix = torch.tensor([[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 2.0, 1.0]])
    report = check(Mixer(mix), ids=[3, 4, 7], mask=mix.bool())
    moved = report.mask.moved
    np.testing.assert_allclose(moved[1, 0], 0.5 * moved[0, 0], rtol=1e-6)
    np.testing.assert_allclose(moved[2, 1], 2 * moved[1, 1], rtol=1e-6)
    np.testing.assert_array_equal(moved[~mix.bool().numpy()], 0.0)
    assert report.obeys


def test_the_first_leaking_pair_is_named() -> None:
    mix = torch.eye(7).tril() + torch.eye(7).roll(-1, 0).tril()
    mix[2, 5] = 1e-3
    mix[4, 6] = 1.0
    report = check(Mixer(mix + torch.ones(7, 7).tril()), ids=[3, 4, 7, 1, 2, 5, 6])
    found = report.finding("reach")
    assert (found.verdict, found.pair) == (BROKEN, (2, 5))
    assert report.finding("gradients").pair == (2, 5)
    assert np.argwhere(report.mask.leaks).tolist() == [[2, 5], [4, 6]]


def test_a_token_that_arrives_nowhere_proves_nothing() -> None:
    mix = torch.ones(7, 7).tril()
    mix[:, 3] = 0.0
    report = check(Mixer(mix), ids=[3, 4, 7, 1, 2, 5, 6])
    found = report.finding("reach")
    assert found.verdict == CANNOT_TELL
    assert "token 3" in found.words
    assert (report.obeys, report.exit_code) == (False, 2)


def test_tokens_that_never_meet_prove_nothing() -> None:
    report = check(Mixer(torch.eye(7)), ids=[3, 4, 7, 1, 2, 5, 6])
    assert report.finding("reach").verdict == CANNOT_TELL
    assert report.finding("gradients").verdict == CANNOT_TELL
    assert report.exit_code == 2


def test_a_whole_distance_that_is_shut_is_a_mask_narrower_than_declared() -> None:
    mix = torch.ones(7, 7).tril() - torch.ones(7, 7).tril(-3)
    found = check(Mixer(mix), ids=[3, 4, 7, 1, 2, 5, 6], mask="causal").finding("gradients")
    assert (found.verdict, found.pair) == (BROKEN, (3, 0))
    assert "with respect to token 0" in found.words
    closed = int((mix.tril() == 0).sum()) - 21  # 21 above the diagonal
    assert (found.silent, found.amount, found.tolerance) == (closed, None, None)
    assert f"without a gradient: {closed} of 21." in found.words


@pytest.mark.parametrize("patient", ["narrow", "in-place", "encoder-causal"])
def test_silent_pairs_are_what_is_counted_where_they_break_a_law(patient: str) -> None:
    report = check(SAMPLES[patient].make())
    (found,) = report.broken
    assert found.silent > 1
    assert found.amount is None
    (line,) = [line for line in as_text(report).splitlines() if line.startswith("BROKEN")]
    assert f"{found.silent} pairs without effect" in line


def test_of_a_large_module_few_positions_are_tried_both_ends_among_them() -> None:
    trial = prepare(CheckedModule(SmallDecoder().eval()), None)
    most = reach.FEWEST_SUBSTITUTES
    assert trial.spread(trial.max_rows // most) == list(range(24))
    trial.subject.parameters = 10**9
    places = trial.spread(trial.max_rows // most)
    assert len(places) == 12
    assert (places[0], places[-1]) == (0, 23)


class HidesNewest(SmallDecoder):
    """A decoder whose cached steps see all cached keys but the last."""

    def order(self, mask: LayerMask, inputs: MaskInputs) -> Tensor:
        order = super().order(mask, inputs)
        return order & (inputs.keys[:, None] != inputs.queries[:, :1, None] - 1) if inputs.step else order


class Upside(SmallDecoder):
    """A decoder that reads later tokens instead of earlier ones."""

    def order(self, mask: LayerMask, inputs: MaskInputs) -> Tensor:
        return inputs.queries[:, :, None] <= inputs.keys[:, None]


def test_causes_are_not_contradicted_by_what_is_read() -> None:
    report = check(HidesNewest())
    assert [finding.law for finding in report.broken] == ["cache"]
    assert "Likely cause" not in report.finding("cache").words
    assert "and no earlier one. Likely cause: the mask is transposed" in check(Upside()).finding("reach").words


class TwoTables(SmallAttention):
    """Attention plus another table of the same ids, read first, by a convolution over the last two tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs, self.convolution = nn.Embedding(50, 32), nn.Conv1d(32, 32, 2)

    def forward(self, input_ids: Tensor) -> Tensor:
        pairs = self.convolution(nn.functional.pad(self.pairs(input_ids).mT, (1, 0))).mT
        return super().forward(input_ids) + self.head(pairs)


class ReadsAgain(SmallAttention):
    """Attention whose table is read a second time: each output gets the embedding of the next token."""

    def forward(self, input_ids: Tensor) -> Tensor:
        return super().forward(input_ids) + self.head(self.embedding(input_ids).roll(-1, 1))


class MovedIds(nn.Module):
    """A module that reads its token, the second before it and, through ids shifted by one, the token before it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(31, 16), nn.Linear(16, 31)

    def forward(self, input_ids: Tensor) -> Tensor:
        x, before = self.embedding(input_ids), nn.functional.pad(input_ids, (1, 0))[:, :-1]
        return self.head(x + nn.functional.pad(x, (0, 0, 2, 0))[:, :-2] + self.embedding(before))


def test_gradients_are_by_every_embedding_that_reads_the_ids() -> None:
    report = check(TwoTables())
    assert report.obeys, report.broken
    assert report.finding("gradients").words == "exactly 0 in 276 of 276 blocked pairs."


def test_a_leak_through_a_second_reading_has_a_gradient() -> None:
    report = check(ReadsAgain())
    assert report.finding("reach").pair == report.finding("gradients").pair == (0, 1)
    assert "with respect to token 1, which its mask blocks" in report.finding("gradients").words


def test_pairs_whose_gradient_passes_by_the_embeddings_are_not_called_shut() -> None:
    report = check(MovedIds(), mask="window:3")
    assert "45 of 45 open pairs" in report.finding("reach").words
    assert report.finding("gradients").verdict == OBEYS


def test_what_does_not_apply_to_a_broken_module_is_said_of_it_as_of_a_sound_one() -> None:
    reasons = {}
    for module in (ReadsAgain(), SmallAttention()):
        report = check(module)
        reasons[report.obeys] = {one.law: one.words for one in report.findings if one.verdict == DOES_NOT_APPLY}
    for law in ("cross-reach", "images", "tree", "checkpointing", "compile"):
        assert reasons[False][law] == reasons[True][law]
    assert reasons[False]["parameters"] == "Influence between tokens is broken already."


class Nearby(SmallAttention):
    """The same attention layer `layers` times, each of which reads what a mask allows."""

    def __init__(self, mask: LayerMask, *, layers: int = 1, config: object = None) -> None:
        super().__init__()
        self.mask, self.layers, self.config = mask, layers, config

    def forward(self, input_ids: Tensor) -> Tensor:
        x, allowed = self.embed(input_ids), self.mask.allowed(input_ids.shape[1])
        for _ in range(self.layers):
            q, k, v = self.qkv(x).chunk(3, -1)
            x = x + self.out(self.weights(q @ k.mT / 32**0.5, allowed) @ v)
        return self.head(x)


@pytest.mark.parametrize(
    ("module", "law", "far", "mask"),
    [
        (Nearby(LayerMask(window=8)), "gradients", 7, "window:8"),
        (Nearby(LayerMask(window=8), layers=2), "gradients", 14, "window:15"),
        (Nearby(LayerMask(window=4), layers=3), "gradients", 9, "window:10"),
        (Nearby(LayerMask(chunk=6)), "gradients", 5, "chunk:6"),
        (Nearby(LayerMask(window=40)), "length", 39, "window:40"),
    ],
)
def test_whether_a_module_is_to_read_only_what_is_near_cannot_be_told_unless_it_is_declared(
    module: Nearby, law: str, far: int, mask: str
) -> None:
    report = check(module)
    finding = report.finding(law)
    assert (finding.verdict, report.obeys, report.exit_code) == (CANNOT_TELL, True, 0)
    assert f"Outputs read no token more than {far} before them, and nothing declares a window." in finding.words
    assert f'pass mask="{mask}" (--mask {mask}), or a mask for each layer' in finding.words
    assert "\nassumed: causal; 24 tokens" in as_text(report)
    assert check(module, mask=mask).finding(law).verdict == OBEYS
    declared = check(module, mask="causal")
    assert declared.finding(law).verdict == BROKEN
    assert "\ndeclared: causal; 24 tokens" in as_text(declared)


class Sparse(SmallAttention):
    """Attention to tokens at one of these distances before the query, and to the `first` of the row."""

    def __init__(self, *distances: int, first: int = 0) -> None:
        super().__init__()
        self.distances, self.first = torch.tensor([0, *distances]), first

    def weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
        row = torch.arange(scores.shape[-1])
        read = torch.isin(row[:, None] - row, self.distances) | (row < self.first)
        return super().weights(scores, allowed & read)


@pytest.mark.parametrize(
    ("module", "law", "words"),
    [
        (Sparse(4), "gradients", "No output reads the token 1 before it,"),
        (Sparse(1, 2, 4, 5, 6, 8), "gradients", "No output reads the token 3 before it,"),
        (Sparse(*range(4), *range(8, 600, 8)), "gradients", "No output reads the token 4 before it,"),
        (Sparse(*range(6), first=2), "length", "In a row of 520 tokens the last two outputs do not read the token 6"),
    ],
)
def test_nor_whether_it_is_to_leave_some_tokens_out(module: Sparse, law: str, words: str) -> None:
    report = check(module)
    finding = report.finding(law)
    assert (finding.verdict, report.obeys, report.exit_code) == (CANNOT_TELL, True, 0)
    assert words in finding.words
    assert "nothing declares a mask. If that is meant, pass its mask, bool [24, 24]" in finding.words
    assert check(module, mask="causal").finding(law).verdict == BROKEN
    assert check(module, mask=report.mask.reaches).obeys


def test_a_configuration_declares_that_all_earlier_tokens_are_read() -> None:
    module = Nearby(LayerMask(window=8), config=SimpleNamespace(n_layer=1))
    assert check(module).finding("gradients").verdict == BROKEN


class InALayer(Nearby):
    """A Nearby module whose attention is a layer of a list of one."""

    def __init__(self, mask: LayerMask) -> None:
        super().__init__(mask)
        self.layers = nn.ModuleList([nn.MultiheadAttention(32, 2, batch_first=True)])

    def forward(self, input_ids: Tensor) -> Tensor:
        x, blocked = self.embed(input_ids), ~self.mask.allowed(input_ids.shape[1])
        return self.head(x + self.layers[0](x, x, x, attn_mask=blocked, need_weights=False)[0])


@pytest.mark.parametrize("size", [24, 32, 40, 100])
def test_neither_a_distance_nor_a_window_is_named_for_chunks_that_the_last_outputs_are_within(size: int) -> None:
    module = InALayer(LayerMask(chunk=size))
    found = [one.words for one in check(module).findings if one.verdict == CANNOT_TELL]
    assert any("in a row of 130 tokens its last 3 outputs do not read the first tokens" in one for one in found)
    assert not any("more than" in one or "window:" in one for one in found)
    declared = check(module, mask="causal").finding("layers")
    assert "layer 0: none of its last 3 outputs reads a token more than" in declared.words
    assert check(module, mask=[f"chunk:{size}"]).finding("layers").verdict == OBEYS


class OneBehind(SmallAttention):
    """Attention with a vector of its own before the row and the last output cut off; ids: whether it reads any."""

    ids = True

    def embed(self, ids: Tensor) -> Tensor:
        return torch.nn.functional.pad(super().embed(ids) * self.ids, (0, 0, 1, -1), value=0.5)


def test_an_output_need_not_read_its_own_token() -> None:
    strict = torch.ones(24, 24, dtype=torch.bool).tril(-1)
    for mask in (None, "causal", strict):
        report = check(OneBehind(), mask=mask, length=24)
        assert report.obeys, report.broken
        assert "276 of 276 open pairs" in report.finding("reach").words
        assert report.finding("reach").words.endswith("No output reads its own token.")
    OneBehind.ids = False
    for mask in (None, strict, torch.eye(24, dtype=torch.bool)):
        assert check(OneBehind(), mask=mask, length=24).finding("reach").verdict == CANNOT_TELL
