"""Tests of what a module may take, keep and return: logits and a cache by name or order, a mask without a default."""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import unmask
from mask_check.check import check
from mask_check.findings import BROKEN, CANNOT_TELL, OBEYS, CannotCheck
from mask_check.sample_networks import SmallPair
from tests.mask_check.held_out import Served
from tests.mask_check.modules import SmallAttention

FORMS: dict[str, Any] = {
    "tuple": lambda found: (found.logits, found.past_key_values),
    "list": lambda found: [found.logits, found.past_key_values],
    "dict": lambda found: {"logits": found.logits, "past_key_values": found.past_key_values},
    "aux": lambda found: (found.logits, {"aux": 0}, [found.logits, found.logits], found.past_key_values),
    "loss first": lambda found: (found.logits.mean(), found.logits, found.past_key_values),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("fault", "law"), [("", ""), ("last", "last"), ("restart", "cache")])
def test_logits_and_a_cache_are_found_by_name_and_by_order(form: str, fault: str, law: str) -> None:
    class Returned(Served):
        def forward(self, *given: Any, **named: Any) -> Any:
            return FORMS[form](super().forward(*given, **named))

    Returned.forward.__signature__ = inspect.signature(Served.forward)  # type: ignore[attr-defined]
    report = check(Returned(fault))
    for one in ("cache", "last"):
        assert report.finding(one).verdict == (BROKEN if one == law else OBEYS), report.finding(one)


class Stacked(nn.Module):
    """Layers with keys and values in one tensor [2,B,T,D], as in GPT-2's first code: in a list or a tuple of layers, or
    all in one tensor. always: with and without use_cache. states: also returns hidden states, in any case.
    """

    def __init__(self, form: Any, *, restarts: bool = False, always: bool = False, states: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.position, self.head = nn.Embedding(50, 16), nn.Embedding(600, 16), nn.Linear(16, 50)
        self.layers = nn.ModuleList(nn.Linear(16, 48) for _ in range(2))
        self.form, self.restarts, self.always, self.states = form, restarts, always, states

    def forward(self, idx: Tensor, past_key_values: Any = None, use_cache: bool = False) -> Any:
        length, past = idx.shape[1], 0 if past_key_values is None else past_key_values[0].shape[-2]
        begin = 0 if self.restarts else past
        x, kept = self.embedding(idx) + self.position(torch.arange(begin, begin + length)), []
        for number, layer in enumerate(self.layers):
            q, k, v = layer(x).chunk(3, -1)
            both = torch.stack([k, v])
            kept.append(torch.cat([past_key_values[number], both], -2) if past else both)
            allowed = torch.ones(length, past + length, dtype=torch.bool).tril(past)
            scores = (q @ kept[-1][0].mT / 4).masked_fill(~allowed, -torch.inf)
            x = x + scores.softmax(-1) @ kept[-1][1]
        found = [self.head(x), *[self.form(kept)] * (use_cache or self.always), *[(x, x, x)] * self.states]
        return tuple(found) if len(found) > 1 else found[0]


@pytest.mark.parametrize("form", [list, tuple, torch.stack])
def test_a_cache_of_tensors_is_what_appears_with_it(form: Any) -> None:
    report = check(Stacked(form))
    assert report.finding("cache").verdict == OBEYS
    assert report.finding("reuse").verdict == OBEYS
    assert check(Stacked(form, restarts=True)).finding("cache").verdict == BROKEN
    assert check(Stacked(form, states=True)).finding("cache").verdict == OBEYS
    report = check(Stacked(form, always=True))
    assert report.finding("cache").verdict == CANNOT_TELL
    assert report.finding("cache").words == "it is not known which of its outputs is its cache."
    assert report.finding("reuse").words == report.finding("cache").words


def test_a_mask_that_must_be_given_is_all_ones() -> None:
    class Masked(SmallAttention):
        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            assert bool((attention_mask == 1).all())
            return super().forward(input_ids)

    class Cached(Served):
        def forward(self, input_ids: Tensor, attention_mask: Tensor, **more: Any) -> Any:
            return super().forward(input_ids, attention_mask, **more)

    more = [one for one in inspect.signature(Served.forward).parameters.values() if one.name != "attention_mask"]
    needed = inspect.Parameter("attention_mask", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    Cached.forward.__signature__ = inspect.Signature([*more[:2], needed, *more[2:]])  # type: ignore[attr-defined]
    assert check(Cached("")).finding("cache").verdict == OBEYS
    assert unmask.assert_causal(Masked()).obeys
    assert check(Masked()).finding("reach").verdict == OBEYS


def test_a_mask_that_an_encoder_decoder_must_be_given_is_of_its_source() -> None:
    class Masked(SmallPair):
        def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Any:  # type: ignore
            assert attention_mask.shape == input_ids.shape
            return super().forward(input_ids, attention_mask, decoder_input_ids)

    assert unmask.assert_causal(Masked()).obeys
    given, by_default = check(Masked()).findings, check(SmallPair()).findings
    assert [(one.law, one.verdict) for one in given] == [(one.law, one.verdict) for one in by_default]


class Keeps(SmallAttention):
    """A module that keeps its attention weights for a plot, and its logits after the first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: Tensor | None = None
        self.maps: list[Tensor] = []

    def weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
        self.shown = super().weights(scores, allowed)
        self.maps = [self.shown]
        return self.shown

    def forward(self, input_ids: Tensor) -> Tensor:
        self.logits = super().forward(input_ids)
        return self.logits


def test_a_module_that_keeps_tensors_of_its_forward_is_copied_and_left_as_it_was() -> None:
    module = Keeps()
    assert check(module).finding("derivative").verdict == OBEYS
    assert module.shown is None
    assert module.maps == []
    assert not hasattr(module, "logits")
    module(torch.arange(7)[None])  # as in training: with an autograd graph
    own = module.shown, module.logits
    assert check(module).finding("derivative").verdict == OBEYS
    assert module.shown is own[0]
    assert module.logits is own[1]


class KeepsTable(SmallAttention):
    """A module with a table as long as its last input, made again for another length."""

    def __init__(self, *, buffer: bool) -> None:
        super().__init__()
        self.length: int | None = None
        if buffer:
            self.register_buffer("table", None, persistent=False)
        else:
            self.table = None

    def forward(self, input_ids: Tensor) -> Tensor:
        if self.length != input_ids.shape[1]:
            self.length = input_ids.shape[1]
            self.table = torch.arange(self.length)[:, None] / 10
        return super().forward(input_ids) + self.table


@pytest.mark.parametrize("before", [0, 1, 12])
@pytest.mark.parametrize("buffer", [False, True])
def test_a_table_goes_with_its_length_after_a_check(before: int, buffer: bool) -> None:
    module, ids = KeepsTable(buffer=buffer).eval(), torch.arange(24)[None]
    expected = KeepsTable(buffer=buffer).eval()(ids)
    if before:
        module(ids[:, :before])
    length = module.length
    check(module)
    assert module.length == length
    assert torch.equal(module(ids), expected)


def test_a_dict_without_logits_is_said_with_its_names() -> None:
    class Elsewhere(SmallAttention):
        def forward(self, input_ids: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            return {"output": super().forward(input_ids)}

    with pytest.raises(CannotCheck, match=r"got \{output\}"):
        check(Elsewhere())


class Transposing(SmallAttention):
    """A module that takes ids [T,B]."""

    def forward(self, input_ids: Tensor) -> Tensor:
        return super().forward(input_ids.t()).transpose(0, 1)


def test_a_module_that_reads_positions_first_is_told_to_read_rows_first() -> None:
    with pytest.raises(CannotCheck, match=r"if its forward takes \[T,B\], pass one that takes \[B,T\]$"):
        check(Transposing())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("made", ["scripted", "traced"])
def test_a_module_of_torch_jit_is_said_to_be_one(made: str) -> None:
    embedding, ids = torch.nn.Embedding(7, 5), torch.zeros(1, 5, dtype=torch.long)
    module = torch.jit.script(embedding) if made == "scripted" else torch.jit.trace(embedding, ids)
    with pytest.raises(CannotCheck, match="it is a scripted or traced module"):
        check(module)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seconds": "x"}, "expected a number of seconds, got 'x'"),
        ({"seconds": -1}, "expected a number of seconds, got -1"),
        ({"ids": [1, 2, 99]}, "its forward raised IndexError on 3 tokens"),
        ({"length": 700}, "its forward raised .* on 700 tokens"),
    ],
)
def test_wrong_arguments_of_assert_causal_are_sentences(options: dict[str, Any], words: str) -> None:
    with pytest.raises(CannotCheck, match=words):
        unmask.assert_causal(SmallAttention(), **options)


def test_a_kernel_that_is_not_offered_ends_no_check() -> None:
    report = check(SmallAttention(), kernels=("eager", "sdpa", "flex_attention"))
    assert report.finding("reach").verdict == OBEYS
    assert "kernels" not in [finding.law for finding in report.broken]


class Few(SmallAttention):
    """A module that takes no more rows than its cache has room for."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, input_ids: Tensor) -> Tensor:
        assert len(input_ids) <= self.rows, "too many rows"
        return super().forward(input_ids)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_module_that_takes_few_rows_is_said_to(rows: int) -> None:
    words = r"its forward raised AssertionError on several rows of \d+ tokens, and none on one of them: too many rows"
    with pytest.raises(CannotCheck, match=words):
        check(Few(rows))
    with pytest.raises(CannotCheck, match=words):
        unmask.assert_causal(Few(rows))


def test_position_ids_that_are_refused_are_not_given() -> None:
    class Refuses(SmallAttention):
        def forward(self, input_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:  # type: ignore[override]
            if position_ids is not None:
                raise ValueError("position_ids are not supported")
            return super().forward(input_ids)

    report = check(Refuses())
    assert report.obeys
    assert report.finding("positions").words == "it raised ValueError: position_ids are not supported"


class Started(SmallAttention):
    """A module called as Llama's first code: with the position of the first token, and a flag."""

    def forward(self, tokens: Tensor, start_pos: int, *, cached: bool) -> Tensor:  # type: ignore[override]
        return super().forward(tokens)


@pytest.mark.parametrize("judge", [check, unmask.assert_causal])
def test_a_wrapper_is_suggested_for_what_a_forward_needs_besides_ids(judge: Any) -> None:
    with pytest.raises(CannotCheck) as refused:
        judge(Started())
    words = (
        "its forward needs more than tokens: check a wrapper that takes tokens alone and passes on start_pos and cached"
    )
    assert str(refused.value) == words
    filled = Started()
    filled.register_forward_pre_hook(
        lambda _, given, named: (given, named | {"start_pos": 0, "cached": False}), with_kwargs=True
    )
    assert check(filled).obeys


class Hashed(SmallAttention):
    """A module with a second table that is larger than its vocabulary: hashed pairs of ids, or numbers of documents."""

    def __init__(self, read: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.second, self.read = nn.Embedding(600, 32), read

    def embed(self, ids: Tensor) -> Tensor:
        return super().embed(ids) + self.second(self.read(ids))


def hashed(ids: Tensor, beside: int = 1) -> Tensor:
    return (31 * ids + 17 * ids.roll(beside, 1).index_fill(1, torch.tensor([0 if beside > 0 else -1]), 0)) % 257


def documents(ids: Tensor) -> Tensor:
    return (ids == 2).cumsum(1)


def test_a_larger_table_that_reads_other_ids_is_not_the_vocabulary() -> None:
    for read in (hashed, documents):
        report = check(Hashed(read))
        assert report.obeys, report.broken
    assert check(Hashed(lambda ids: hashed(ids, -1))).finding("reach").verdict == BROKEN


def test_a_vocabulary_that_cannot_be_found_is_to_be_given() -> None:
    with pytest.raises(CannotCheck, match=r"index out of range.* give it a config with vocab_size$"):
        check(Hashed(lambda ids: ids % 257))
    module = Hashed(lambda ids: ids % 257)
    module.config = SimpleNamespace(vocab_size=50)
    assert check(module).obeys


class FromEmbeddings(nn.Module):
    """Causal attention on embeddings [B,T,16], whose first part is another one's."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.qkv = first, nn.Linear(16, 48)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Rotary(nn.Module):
    dim = 4


@pytest.mark.parametrize("first", [nn.Softmax(dim=-1), nn.LogSoftmax(dim=2), nn.GLU(), Rotary(), nn.LSTM(16, 8)])
@pytest.mark.parametrize("judge", [check, unmask.assert_causal])
def test_the_width_of_embeddings_is_no_axis_and_no_other_part_s_width(judge: Any, first: nn.Module) -> None:
    assert judge(FromEmbeddings(first)).finding("reach").verdict == OBEYS


class OwnNorm(nn.Module):
    """An RMSNorm as people write it, which keeps its width in `dim`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim, self.weight = dim, nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (self.dim,), self.weight)


class OwnWeights(FromEmbeddings):
    """A FromEmbeddings module without Linear: only its norm states a width."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__(first)
        del self.qkv
        self.norm = OwnNorm(16)
        self.weight = nn.Parameter(torch.randn(16, 48) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.norm(x) @ self.weight).chunk(3, -1)
        return x + F.scaled_dot_product_attention(q, k, v, is_causal=True)


@pytest.mark.parametrize("first", [nn.Softmax(dim=2), nn.GLU(), Rotary(), nn.Identity()])
@pytest.mark.parametrize("judge", [check, unmask.assert_causal])
def test_the_width_of_embeddings_may_be_that_of_an_own_norm(judge: Any, first: nn.Module) -> None:
    assert judge(OwnWeights(first)).finding("reach").verdict == OBEYS


class Given(SmallAttention):
    """A module that changes its ids before it reads them, and cuts its outputs to their length."""

    def __init__(self, change: Callable[[Tensor], Tensor], begin: int) -> None:
        super().__init__()
        self.change, self.begin = change, begin

    def forward(self, input_ids: Tensor) -> Tensor:
        return super().forward(self.change(input_ids))[:, self.begin :][:, : input_ids.shape[1]]


@pytest.mark.parametrize(
    ("change", "begin"),
    [
        (lambda ids: F.pad(ids, (1, 0), value=49), 1),  # <bos> before them
        (lambda ids: F.pad(ids, (0, -ids.shape[1] % 16)), 0),  # to whole blocks
        (lambda ids: F.pad(ids, (1, -1), value=49), 0),  # <bos> before them, the last cut off
    ],
)
@pytest.mark.parametrize("judge", [check, unmask.assert_causal])
def test_ids_may_be_read_among_tokens_of_its_own(judge: Any, change: Any, begin: int) -> None:
    assert judge(Given(change, begin)).obeys


@pytest.mark.parametrize("options", [{}, {"length": 24}, {"ids": [0, 1, 1, 0, 1, 0, 0, 1]}])
def test_a_vocabulary_of_two_is_read(options: dict[str, Any]) -> None:
    module = SmallAttention()
    module.embedding = nn.Embedding(2, 32)
    assert check(module, **options).obeys
    assert unmask.assert_causal(module, **options).obeys
