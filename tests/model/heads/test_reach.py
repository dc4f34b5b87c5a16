"""Tests of reach, against a search of every path and against the known reach of windows."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from model.base import Model
from model.heads.reach import PathStep, layer_masks, leaked_tokens, path, paths_to, reach, reach_of
from model.masks import MaskSpec, Stroke

TEXTS = ["the cat sat on the mat and the cat", "the mat"]


def searched(allowed: list[Tensor]) -> Tensor:
    """Return the fewest layers after which a path, walked from the last down, leads each query to each key; else 0."""
    size = len(allowed[0])
    first = torch.zeros(size, size, dtype=torch.int16)
    for layers in range(len(allowed), 0, -1):
        for query in range(size):
            reached = {query}
            for mask in reversed(allowed[:layers]):
                reached |= {key for position in reached for key in range(size) if mask[position, key]}
            first[query, sorted(reached)] = layers
    return first


def random_masks(layers: int, size: int, share: float, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(size, size, generator=generator) < share for _ in range(layers)]


@pytest.mark.parametrize(("layers", "size"), [(1, 7), (3, 11), (5, 13), (7, 2), (2, 1)])
def test_reach_is_what_a_search_of_all_paths_finds(layers: int, size: int) -> None:
    for seed, share in product(range(5), (0.0, 0.05, 0.15, 0.4)):
        masks = random_masks(layers, size, share, seed)
        assert torch.equal(reach(masks), searched(masks)), (seed, share)


def test_a_token_keeps_its_own_state_where_its_mask_blocks_everything() -> None:
    shut = torch.zeros(5, 5, dtype=torch.bool)
    assert torch.equal(reach([shut, shut]), torch.eye(5, dtype=torch.int16))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("layers", "size"), [(1, 7), (3, 11), (5, 13)])
def test_a_path_is_allowed_and_short(layers: int, size: int, seed: int) -> None:
    masks = random_masks(layers, size, 0.15, seed)
    first = reach(masks)
    for query, key in torch.cartesian_prod(torch.arange(size), torch.arange(size)).tolist():
        if not first[query, key]:
            with pytest.raises(ValueError, match="expected a query that depends"):
                path(masks, query, key)
            continue
        looks = path(masks, query, key)
        assert all(masks[look.layer][look.query, look.key] for look in looks)
        assert [look.query for look in looks] == [query, *(look.key for look in looks)][:-1]
        assert [look.layer for look in looks] == sorted({look.layer for look in looks}, reverse=True)
        if query != key:
            assert (looks[-1].key, looks[0].layer + 1) == (key, first[query, key])


@pytest.mark.parametrize(
    "wrong",
    [[], [torch.ones(3, 4, dtype=torch.bool)], [torch.ones(3, 3)], [torch.tensor(True)],
     [torch.ones(3, 3, dtype=torch.bool), torch.ones(2, 2, dtype=torch.bool)]],
)  # fmt: skip
def test_anything_else_than_boolean_squares_is_refused(wrong: list[Tensor]) -> None:
    with pytest.raises(ValueError, match="expected a boolean square"):
        reach(wrong)


class TestOfARun:
    @pytest.mark.parametrize("side", ["left", "right"])
    @pytest.mark.parametrize(
        "spec",
        [
            MaskSpec(),
            MaskSpec(causal=False, sliding=3),
            MaskSpec(sliding=2, layers=(1,)),
            MaskSpec(sliding=2, sinks=1, heads=(2,)),
            MaskSpec(stride=2, drawn=(Stroke("block", 3, 0, 5, 2),), layers=(0,), heads=(0, 1)),
        ],
    )
    def test_a_layers_mask_is_that_of_any_of_its_heads(self, tiny: Model, side: str, spec: MaskSpec) -> None:
        trace = tiny.run(tiny.encode(TEXTS, side), spec)
        for row in range(2):
            every = []
            for layer in range(trace.num_layers):
                heads = [trace.allowed(layer, row, head=head) for head in range(trace.num_heads)]
                every.append(torch.stack(heads).any(0))
                assert torch.equal(layer_masks(trace, row, spec)[layer], every[-1])
            found = reach_of(trace, row, spec, 0, 0)
            assert np.array_equal(found.first, searched(every))
            assert np.array_equal(found.window, torch.stack([mask.sum(-1) for mask in every]))
            assert np.array_equal(found.seen[-1], (found.first > 0).sum(-1))

    def test_a_token_changes_the_logits_of_those_that_it_reaches_and_of_no_others(self, tiny: Model) -> None:
        spec = MaskSpec(sliding=3)
        batch = tiny.encode(["the cat sat on the mat and the cat sat still"])
        logits = tiny.run(batch, spec).logits[0]
        first = torch.from_numpy(reach_of(tiny.run(batch, spec), 0, spec, 0, 0).first)
        for key in range(batch.ids.shape[1]):
            ids = batch.ids.clone()
            ids[0, key] = (ids[0, key] + 5) % 200
            changed = tiny.run(replace(batch, ids=ids), spec).logits[0] - logits
            assert torch.equal(changed.abs().amax(-1) > 1e-6, first[:, key] > 0), key

    def test_no_token_knows_its_own_answer_under_the_masks_of_training(self, tiny: Model) -> None:
        assert answers(tiny, MaskSpec()) == {}

    def test_one_opened_cell_gives_answers_away_by_a_second_layer(self, tiny: Model) -> None:
        found = answers(tiny, MaskSpec(drawn=(Stroke("open", 2, 5, 2, 5),)))
        assert found == {3: (PathStep(1, 2, 5), PathStep(0, 5, 3)), 5: (PathStep(1, 4, 2), PathStep(0, 2, 5))}
        # position 3 would need a third layer to reach its answer, 4: from 3 to 2 to 5 to 4

    def test_open_in_the_first_layer_alone_only_what_is_looked_at_itself_gets_out(self, tiny: Model) -> None:
        found = answers(tiny, MaskSpec(drawn=(Stroke("open", 2, 5, 2, 5),), layers=(0,)))
        assert found == {5: (PathStep(1, 4, 2), PathStep(0, 2, 5))}

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_without_a_causal_mask_every_answer_but_the_first_tokens_is_looked_at(self, tiny: Model, side: str) -> None:
        real = tiny.encode(TEXTS, side).real(1)
        found = answers(tiny, MaskSpec(causal=False), 1, side)
        assert found == {token: (PathStep(0, token - 1, token),) for token in range(real.start + 1, real.stop)}


def answers(model: Model, spec: MaskSpec, row: int = 0, side: str = "right") -> dict[int, tuple[PathStep, ...]]:
    """Return the tokens that the position before them can reach, each with its path."""
    trace = model.run(model.encode(TEXTS, side), spec)
    return paths_to(trace, row, spec, leaked_tokens(trace, row, spec))
