"""Tests of MaskContext: the masks of a layer and head, and those shown to a user. True means "may attend"."""

import dataclasses
import random

import pytest
import torch

from model import masks
from model.mask_kinds import KINDS
from model.masks import MaskContext, MaskSpec, Stroke
from model.spec import OFF
from tests.model.random_specs import built, random_spec

OPENERS = {name for name, kind in KINDS.items() if kind.opens}
KEEP = torch.tensor([[True, True, True, True, True], [False, False, True, True, True]])


class TestMaskContext:
    """MaskContext.allowed is the mask of a run, MaskContext.masks are those shown to a user; B=2, 3 heads."""

    HERE = MaskContext(KEEP, 5, 3, layer=1, sizes={"window": 4}, split=lambda _: torch.tensor([[0, 0, 1, 1, 1]] * 2))

    @pytest.mark.parametrize("seed", range(5))
    def test_all_masks_of_a_head_together_are_what_the_run_allows(self, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(20):
            spec = random_spec(chance, layers=(0, 1), heads=(0, 1, 2))
            together = self.HERE.allowed(spec)
            for head in range(3):
                expected = torch.ones(2, 1, 5, 5, dtype=torch.bool)
                for mask in self.HERE.masks(spec, head).values():
                    expected = expected & mask
                found = expected if together is None else together.expand(2, 3, 5, 5)[:, head : head + 1]
                assert expected.all() or together is not None
                assert torch.equal(found, expected), (spec, head)

    @pytest.mark.parametrize("seed", range(3))
    def test_without_the_drawing_blocks_and_opens_decide(self, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(20):
            spec = random_spec(chance, layers=(0, 1), heads=(0, 1, 2))
            for head in range(3):
                blockers, openings = self.HERE.masks_without_strokes(spec, head)
                assert set(blockers) <= set(masks.MASK_NAMES) - {"drawn", *OPENERS}
                assert set(openings) <= OPENERS
                everything = {"nothing": torch.ones(2, 1, 5, 5, dtype=torch.bool)}
                unblocked, allowed = (
                    masks.combine(some | everything)
                    for some in (blockers, self.HERE.masks(dataclasses.replace(spec, drawn=()), head))
                )
                assert unblocked is not None
                assert allowed is not None
                assert torch.equal(sum(openings.values(), unblocked), allowed), (spec, head)

    def test_outside_its_layers_and_heads_the_standard_masks_hold(self) -> None:
        spec = dataclasses.replace(OFF, sliding=2, layers=(1,), heads=(0, 2))
        assert [set(self.HERE.masks(spec, head)) for head in range(3)] == [
            {"sliding"},
            {"causal", "padding", "window"},
            {"sliding"},
        ]
        elsewhere = dataclasses.replace(self.HERE, layer=0, standard=MaskSpec(causal=False))
        assert [set(elsewhere.masks(spec, head)) for head in range(3)] == [{"padding", "window"}] * 3

    def test_one_mask_for_all_heads_unless_they_differ(self) -> None:
        for spec, heads in ((MaskSpec(), 1), (MaskSpec(layers=(1,)), 1), (MaskSpec(sinks=1, heads=(2,)), 3)):
            allowed = self.HERE.allowed(spec)
            assert allowed.shape[1] == heads

    def test_layers_under_the_same_masks_share_them(self) -> None:
        contexts = [dataclasses.replace(self.HERE, layer=layer) for layer in range(5)]
        made: dict = {}
        spec = MaskSpec(sliding=2, layers=(1, 3))
        found = [context.allowed(spec, made) for context in contexts]
        assert len(made) == 2
        assert found[0] is found[2] is found[4]
        assert found[1] is found[3]
        assert found[0] is not found[1]

    def test_a_mask_that_the_model_cannot_have_stays_off(self) -> None:
        cross = dataclasses.replace(self.HERE, available=frozenset({"padding"}))
        everything = MaskSpec(
            padding_queries=True,
            sliding=2,
            stride=2,
            documents=".",
            prefix=2,
            sinks=1,
            drawn=(Stroke("block", 1, 0, 4, 3),),
        )
        assert set(cross.masks(everything)) == {"padding"}
        assert torch.equal(cross.masks(everything)["padding"], KEEP[:, None, None])
        without = dataclasses.replace(self.HERE, available=frozenset(masks.MASK_NAMES) - {"causal"})
        assert set(without.masks(everything)) == {"padding", "window", "sliding", "stride", "documents", "drawn"}


def test_a_chunk_counts_real_tokens_and_sees_itself_alone() -> None:
    keep = torch.tensor([[False, True, True, True, True, True, True, True]])
    allowed = built(dataclasses.replace(OFF, chunk=True), keep, 8, {"chunk": 3})["chunk"][0, 0]
    chunks = [-1, 0, 0, 0, 1, 1, 1, 2]
    assert allowed.tolist() == [[one == other for other in chunks] for one in chunks]
