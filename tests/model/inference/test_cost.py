"""Tests of what a mask costs: counts of blocks against torch's own, on random masks and sizes.

python -m pytest tests/model/inference/test_cost.py
"""

import tracemalloc
from itertools import accumulate, pairwise
from random import Random
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

import unmask
from model.inference.cost import EMPTY, FULL, PARTIAL, MaskCost, _Blocks, cost
from model.mask_kinds import KINDS
from model.masks import MaskContext
from model.spec import MaskSpec, Stroke

SIZES = (16, 32, 33, 64, 100, 128, 256)


def random_spec(random: Random, tokens: int) -> MaskSpec:
    """Return a spec, causal or not, with some kinds that need only a text, and sometimes strokes reaching beyond it."""
    kinds: dict[str, Any] = {"causal": random.random() < 0.6}
    for name, kind in KINDS.items():
        if isinstance(kind.first, int) and random.random() < 0.3:
            kinds[name] = random.randint(kind.least, tokens + 3 if random.random() < 0.5 else kind.least + 8)
    strokes = []
    for _ in range(random.choice((0, 0, 1, 4, 12))):
        first, last, begin, end = (random.randint(0, tokens + 5) for _ in range(4))
        kind = random.choice(("block", "open", "erase"))
        strokes.append(Stroke(kind, min(first, last), min(begin, end), max(first, last), max(begin, end)))
    return MaskSpec(drawn=tuple(strokes), **kinds)


def allowed(spec: MaskSpec, tokens: int, documents: list[int]) -> torch.Tensor:
    """Return the mask of a run, bool [T,T]."""
    part = torch.tensor([sum(at >= end for end in accumulate(documents)) for at in range(tokens)])
    spec = spec.replace(documents="." if documents else "")
    found = MaskContext(torch.ones(1, tokens, dtype=torch.bool), tokens, 1, split=lambda _: part[None]).allowed(spec)
    return torch.ones(tokens, tokens, dtype=torch.bool) if found is None else found.expand(1, 1, -1, -1)[0, 0]


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_blocks_are_those_of_flex_attention(first: int) -> None:
    for seed in range(first, first + 50):
        are_those_of_flex_attention(Random(seed))


def are_those_of_flex_attention(random: Random) -> None:
    tokens, block = random.randint(1, 300), random.choice(SIZES)
    spec = random_spec(random, tokens)
    ends = sorted({random.randint(1, tokens) for _ in range(random.choice((0, 0, 1, 3)))})
    documents = [end - begin for begin, end in pairwise([0, *ends])]
    mask = allowed(spec, tokens, documents)
    theirs = create_block_mask(
        lambda batch, head, query, key: mask[query, key], 1, 1, tokens, tokens, device="cpu", BLOCK_SIZE=block
    )
    found = cost(spec, tokens, block, documents)
    count = -(-tokens // block)
    full, partial = int(theirs.full_kv_num_blocks.sum()), int(theirs.kv_num_blocks.sum())
    assert (found.full, found.partial) == (full, partial)
    assert found.empty == count**2 - full - partial
    assert found.allowed == int(mask.sum())


def test_each_block_is_where_it_belongs() -> None:
    found = cost({"causal": True, "sliding": 20}, 96, 32)
    assert found.blocks.tolist() == [[PARTIAL, EMPTY, EMPTY], [PARTIAL, PARTIAL, EMPTY], [EMPTY, PARTIAL, PARTIAL]]
    assert cost({"causal": False}, 64, 32).blocks.tolist() == [[FULL, FULL], [FULL, FULL]]


def test_numbers_of_a_small_mask_by_hand() -> None:
    found = cost({"causal": True}, 32, 16)  # two partial blocks of 136 cells, one full of 256, one empty
    assert (found.full, found.partial, found.empty, found.allowed) == (1, 2, 1, 528)
    assert found.share == pytest.approx(1 - 528 / 768)
    assert found.flops(head_size=5) == 4 * 768 * 5
    assert found.key_value_bytes(head_size=5) == 2 * 3 * 16 * 5 * 2
    assert found.dense_bytes == 1024


@pytest.mark.parametrize(
    ("masks", "accepted"),
    [
        ({"causal": True}, ["is_causal", "varlen", "attn_mask", "flex"]),
        ({"causal": True, "sliding": 8}, ["varlen", "attn_mask", "flex"]),
        ({"causal": True, "sliding": 8, "sinks": 1}, ["attn_mask", "flex"]),
        ({"causal": True, "documents": 2}, ["varlen", "attn_mask", "flex"]),
        ({"drawn": [["block", 3, 1, 3, 1]]}, ["attn_mask", "flex"]),
        ({"causal": True, "sliding": 1000}, ["is_causal", "varlen", "attn_mask", "flex"]),  # wider than the text
        ({"causal": True, "block_causal": 8}, ["is_causal", "varlen", "attn_mask", "flex"]),  # changes no cell
        ({"causal": True, "sinks": 3}, ["attn_mask", "flex"]),
        ({"causal": True, "sinks": 1}, ["is_causal", "varlen", "attn_mask", "flex"]),
        ({"causal": True, "sliding": 300, "documents": 1}, ["varlen", "attn_mask", "flex"]),
        ({"causal": True, "sliding": 50, "sinks": 1}, ["attn_mask", "flex"]),  # differ from token 50 on
        ({"causal": True, "prefix": 1}, ["is_causal", "varlen", "attn_mask", "flex"]),
        ({"causal": False, "block_causal": 8, "stride": 2}, ["attn_mask", "flex"]),
        ({"causal": False, "block_causal": 1}, ["is_causal", "varlen", "attn_mask", "flex"]),  # is the causal mask
        ({"causal": False, "prefix_lm": 1}, ["is_causal", "varlen", "attn_mask", "flex"]),
        ({"causal": False, "prefix_lm": 1, "documents": 2}, ["varlen", "attn_mask", "flex"]),
        ({"causal": False, "block_causal": 1, "sliding": 8}, ["varlen", "attn_mask", "flex"]),
        ({"causal": True, "prefix": 100}, ["is_causal", "varlen", "attn_mask", "flex"]),  # blocks nothing
        ({"causal": False, "block_causal": 2}, ["attn_mask", "flex"]),
        ({"causal": True, "sliding": 16, "stride": 16}, ["varlen", "attn_mask", "flex"]),  # is a window of 1
        ({"causal": True, "stride": 100, "documents": 2}, ["varlen", "attn_mask", "flex"]),
        ({"causal": True, "sinks": 100, "documents": 2}, ["is_causal", "varlen", "attn_mask", "flex"]),  # opens all
    ],
)
def test_kernels_that_can_compute_it(masks: dict[str, Any], accepted: list[str]) -> None:
    parts = [30] * masks.pop("documents", 0)
    found: MaskCost = unmask.cost(masks, tokens=100, block=16, documents=parts)
    assert [name for name, takes in found.kernels.items() if takes] == accepted


@pytest.mark.parametrize(
    "masks", [{"sliding": 5, "sinks": 6}, {"causal": False, "sliding": 2, "prefix": 11}, {"sliding": 11, "sinks": 3}]
)
def test_as_many_cells_as_the_causal_mask_are_not_the_causal_mask(masks: dict[str, Any]) -> None:
    found = unmask.cost(masks, tokens=16, block=16)
    assert [name for name, takes in found.kernels.items() if takes] == ["attn_mask", "flex"]


def test_a_kernel_takes_whatever_is_the_causal_mask_on_a_short_text() -> None:
    standard, taken = allowed(MaskSpec(), 16, []), 0
    for seed in range(400):
        spec = random_spec(Random(seed), 16).replace(drawn=())
        found, mask = cost(spec, 16, 16).kernels["is_causal"], allowed(spec, 16, [])
        same = bool((mask == standard).all())
        assert found == (same or bool(mask.all())), spec  # is_causal=False blocks nothing
        taken += same
    assert taken > 20


@pytest.mark.parametrize(
    ("masks", "block"),
    [
        ({"causal": True, "sliding": 4096, "sinks": 4, "prefix": 300}, 128),
        ({"causal": True, "stride": 4}, 16),
        ({"causal": False, "block_causal": 3}, 256),
    ],
)
def test_a_long_text_takes_no_square_memory(masks: dict[str, Any], block: int) -> None:
    tracemalloc.start()
    found = unmask.cost(masks, tokens=32_768, block=block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
    assert found.full + found.partial + found.empty == (32_768 // block) ** 2


def test_blocks_drawn_over_are_not_counted_cell_by_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    count_cells = _Blocks._count_cells
    monkeypatch.setattr(
        _Blocks, "_count_cells", lambda self, some, others: counted.append(len(some)) or count_cells(self, some, others)
    )  # fmt: skip
    edges = [["block", 70 + 64 * row, 0, 90 + 64 * row, 1023] for row in range(15)]
    found = cost({"drawn": [*edges, ["open", 64, 0, 1023, 1023]]}, 1024, 64)
    assert (found.full, found.partial, found.allowed) == (15 * 16, 1, 15 * 16 * 64**2 + 65 * 32)
    assert sum(counted) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens": 32_769}, "expected a number of tokens from 1 to 32768, got 32769"),
        ({"tokens": 0}, "expected a number of tokens"),
        ({"block": 15}, "expected a block size from 16 to 256, got 15"),
        ({"masks": {"sliding": "4"}}, "sliding: expected a whole number"),
        ({"masks": {"nothing": 4}}, "expected one of block_causal"),
    ],
)
def test_what_it_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unmask.cost(**{"masks": {}} | arguments)
